// Made by tools/build_explorers.py from kvlib/costs/formulas.py, kvbook/explorers/scenes and
// kvbook/explorers/svg.py. Do not edit. The helpers whose names begin with _py are PScript's,
// BSD-2-Clause: see PSCRIPT-LICENSE beside this file.
(function () {
"use strict";
var log10 = Math.log10;
var _pyfunc_abs = Math.abs;
var _pyfunc_create_dict = function () {
    var d = {};
    for (var i=0; i<arguments.length; i+=2) { d[arguments[i]] = arguments[i+1]; }
    return d;
};
var _pyfunc_int = function (x, base) { // nargs: 1 2
    if(base !== undefined) return parseInt(x, base);
    return x<0 ? Math.ceil(x): Math.floor(x);
};
var _pyfunc_op_add = function (a, b) { // nargs: 2
    if (Array.isArray(a) && Array.isArray(b)) {
        return a.concat(b);
    } return a + b;
};
var _pyfunc_op_contains = function op_contains (a, b) { // nargs: 2
    if (b == null) {
    } else if (Array.isArray(b)) {
        for (var i=0; i<b.length; i++) {if (_pyfunc_op_equals(a, b[i]))
                                           return true;}
        return false;
    } else if (b.constructor === Object) {
        for (var k in b) {if (a == k) return true;}
        return false;
    } else if (b.constructor == String) {
        return b.indexOf(a) >= 0;
    } var e = Error('Not a container: ' + b); e.name='TypeError'; throw e;
};
var _pyfunc_op_equals = function op_equals (a, b) { // nargs: 2
    var a_type = typeof a;
    // If a (or b actually) is of type string, number or boolean, we don't need
    // to do all the other type checking below.
    if (a_type === "string" || a_type === "boolean" || a_type === "number") {
        return a == b;
    }

    if (a == null || b == null) {
    } else if (Array.isArray(a) && Array.isArray(b)) {
        var i = 0, iseq = a.length == b.length;
        while (iseq && i < a.length) {iseq = op_equals(a[i], b[i]); i+=1;}
        return iseq;
    } else if (a.constructor === Object && b.constructor === Object) {
        var akeys = Object.keys(a), bkeys = Object.keys(b);
        akeys.sort(); bkeys.sort();
        var i=0, k, iseq = op_equals(akeys, bkeys);
        while (iseq && i < akeys.length)
            {k=akeys[i]; iseq = op_equals(a[k], b[k]); i+=1;}
        return iseq;
    } return a == b;
};
var _pyfunc_op_mult = function (a, b) { // nargs: 2
    if ((typeof a === 'number') + (typeof b === 'number') === 1) {
        if (a.constructor === String) return _pymeth_repeat.call(a, b);
        if (b.constructor === String) return _pymeth_repeat.call(b, a);
        if (Array.isArray(b)) {var t=a; a=b; b=t;}
        if (Array.isArray(a)) {
            var res = []; for (var i=0; i<b; i++) res = res.concat(a);
            return res;
        }
    } return a * b;
};
var _pyfunc_range = function (start, end, step) {
    var i, res = [];
    var val = start;
    var n = (end - start) / step;
    for (i=0; i<n; i++) {
        res.push(val);
        val += step;
    }
    return res;
};
var _pyfunc_truthy = function (v) {
    if (v === null || typeof v !== "object") {return v;}
    else if (v.length !== undefined) {return v.length ? v : false;}
    else if (v.byteLength !== undefined) {return v.byteLength ? v : false;}
    else if (v.constructor !== Object) {return true;}
    else {return Object.getOwnPropertyNames(v).length ? v : false;}
};
var _pymeth_append = function (x) { // nargs: 1
    if (!Array.isArray(this)) return this.append.apply(this, arguments);
    this.push(x);
};
var _pymeth_join = function (x) { // nargs: 1
    if (this.constructor !== String) return this.join.apply(this, arguments);
    return x.join(this);  // call join on the list instead of the string.
};
var _pymeth_repeat = function(count) { // nargs: 0
    if (this.repeat) return this.repeat(count);
    if (count < 1) return '';
    var result = '', pattern = this.valueOf();
    while (count > 1) {
        if (count & 1) result += pattern;
        count >>= 1, pattern += pattern;
    }
    return result + pattern;
};
var _pymeth_replace = function (s1, s2, count) {  // nargs: 2 3
    if (this.constructor !== String) return this.replace.apply(this, arguments);
    var i = 0, i2, parts = [];
    count = (count === undefined) ? 1e20 : count;
    while (count > 0) {
        i2 = this.indexOf(s1, i);
        if (i2 >= 0) {
            parts.push(this.slice(i, i2));
            parts.push(s2);
            i = i2 + s1.length;
            count -= 1;
        } else break;
    }
    parts.push(this.slice(i));
    return parts.join('');
};
var BAR, BINARY, BOLD, COLUMNS, DECIMAL, ENDLESS, EULER, FIRST, GAP, GIB, HALO, ILLIONS, LAST, LEADING, LETTER, LEVELS, LIGHT, LIGHT_TEXT, LINE, MINUS, MOST_GUESSES, MOST_NEW, NARROW_LETTERS, PALE, RESERVE, SAMPLES, SHARE, SHARES, SHARE_LABEL, SHORT, SHOWN, SIDE, SMALL, TERA, THOUSANDS, TITLE, WEIGHT_BITS, WIDE_LETTERS, activation_bytes, add_once, at_x, at_y, attainable, attended, attended_bytes, attention_flops, attention_line, axis_bytes, axis_counts, axis_decades, axis_linear, axis_tokens, bandwidth_words, bar_ticks, bars_panel, bars_top, batched_time, best_words, bits_words, box, budget_words, bytes_exact, bytes_words, cached_flops, cells_panel, clipped, count_words, covered, crossed, curve_contexts, curve_tokens, curves_panel, data_of, draw, draw_axes, draw_bars, draw_cells, draw_curves, draw_line, draw_map, draw_names, draw_parts, draw_row, draw_table, empty_slots, empty_words, end_names, entropy_of, escaped, eviction_line, evicts, exact, experts_read, fixed, flop_words, flops_unit, free_box, group_bytes, group_name, group_size, grouped, growth_bars, growth_curves, growth_formula, growth_scene, growth_summary, guessed_tokens, guessing_gain, haloed, head_dims, held_rule, held_words, in_blocks, intensity_words, interval_words, kept_tokens, label_room, large_words, latent_bars, latent_curve, latent_forms, latent_formula, latent_scene, latent_summary, latent_work, layers_as_held, layers_held, layers_keeping_all, layers_on_one, layers_reserved, legend_at, linear_flops, linear_lines, longest, map_cells, map_frame, map_letters, map_path, map_shares, map_size, memory_bar, memory_bytes, memory_curve, memory_formula, memory_numbers, memory_scene, memory_summary, most_blocks, most_held, new_words, nice_step, number_words, padded, padding_bars, padding_cells, padding_scene, paint, paint_on, paint_text, pairs, part_words, pass_work, payload_only, percent_words, place, plot_area, powers_between, px, range_words, rate_words, ratio_words, rectangle, request_line, requests_that_fit, reserved_bytes, roofline_formula, roofline_numbers, roofline_plane, roofline_scene, roofline_summary, roofline_times, roofline_work, sampling_bars, sampling_formula, sampling_scene, sampling_summary, scale_line, scaled_words, seconds, seconds_words, segment, segment_meets, share_line, shared_saving, softmax_of, speculation_bars, speculation_curves, speculation_formula, speculation_numbers, speculation_scene, speculation_summary, speculation_work, speed_point, speed_words, spread, state_bytes, step_flops, step_of, steps_words, stored_bytes, stub53_, text_width, tick_stride, ticked, time_unit, times_words, token_bytes, token_line, tokens_kept, tokens_short, tokens_to_amortise, tokens_words, triangle, trimmed, uncached_flops, unconfirmed, unequal_lengths, uneven, upright, vector_bytes, verdict_words, visible, weight_bytes_on_one, weights_read, whole, words_at, wrapped;
MINUS = "\u2212";
BINARY = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
DECIMAL = ["bytes", "kB", "MB", "GB", "TB", "PB"];
THOUSANDS = ["", "k", "M", "G", "T", "P", "E"];
ILLIONS = ["", " thousand", " million", " billion", " trillion", " quadrillion"];
padded = function (n, width) {
    var text;
    text = _pymeth_join.call("", [_pyfunc_int(n)]);
    while (text.length < width) {
        text = "0" + text;
    }
    return text;
};

grouped = function (n) {
    var left, text;
    left = _pyfunc_op_mult(n, 1.0);
    text = "";
    while (left >= 1000) {
        text = ("," + padded(left % 1000, 3)) + text;
        left = Math.floor(left/1000);
    }
    return _pymeth_join.call("", [_pyfunc_int(left), text]);
};

fixed = function (x, digits) {
    var above, scale, text, units;
    scale = Math.pow(10, digits);
    units = Math.floor(((_pyfunc_op_mult(_pyfunc_abs(x), scale)) + 0.5)/1);
    above = Math.floor(units/scale);
    text = grouped(above);
    if ((digits > 0)) {
        text = _pymeth_join.call("", [text, ".", padded(units - _pyfunc_op_mult(above, scale), digits)]);
    }
    if (((x < 0) && (units > 0))) {
        text = _pyfunc_op_add(MINUS, text);
    }
    return text;
};

trimmed = function (x, digits) {
    var text;
    text = fixed(x, digits);
    if ((digits > 0)) {
        while (_pyfunc_op_equals(text[text.length - 1], "0")) {
            text = text.slice(0,text.length - 1);
        }
        if (_pyfunc_op_equals(text[text.length - 1], ".")) {
            text = text.slice(0,text.length - 1);
        }
    }
    return text;
};

number_words = function (x) {
    var digits, size;
    size = _pyfunc_abs(x);
    if ((size >= 99.95)) {
        return fixed(x, 0);
    }
    if ((size >= 9.995)) {
        return trimmed(x, 1);
    }
    if (_pyfunc_op_equals(size, 0)) {
        return "0";
    }
    digits = 2;
    while ((size < 0.9995) && (digits < 12)) {
        size = _pyfunc_op_mult(size, 10);
        digits += 1;
    }
    return trimmed(x, digits);
};

step_of = function (x, base, count) {
    var power, size, stub1_;
    stub1_ = [_pyfunc_abs(x), 0];
    size = stub1_[0];power = stub1_[1];
    while ((((size + 0.5) >= base)) && ((power < (count - 1)))) {
        size = size / base;
        power += 1;
    }
    return power;
};

bytes_words = function (x, base) {
    var names, power;
    names = (_pyfunc_op_equals(base, 1024))? (BINARY) : (DECIMAL);
    power = step_of(x, base, names.length);
    if ((_pyfunc_op_equals(power, 0) && _pyfunc_op_equals(x, 1))) {
        return "1 byte";
    }
    return _pymeth_join.call("", ([number_words(x / Math.pow(base, power)), " ", names[power]]));
};

bytes_exact = function (x) {
    return (_pyfunc_op_equals(x, 1))? ("1 byte") : (_pymeth_join.call("", [number_words(x), " bytes"]));
};

scaled_words = function (x, unit) {
    var power;
    power = step_of(x, 1000, THOUSANDS.length);
    return _pymeth_join.call("", ([number_words(x / Math.pow(1000.0, power)), " ", THOUSANDS[power], unit]));
};

large_words = function (n) {
    var power;
    if ((n < 100000)) {
        return number_words(n);
    }
    power = step_of(n, 1000, ILLIONS.length);
    return _pymeth_join.call("", ([number_words(n / Math.pow(1000.0, power)), ILLIONS[power]]));
};

seconds_words = function (x) {
    if ((x < 0.0009995)) {
        return _pymeth_join.call("", [number_words(_pyfunc_op_mult(x, 1000000)), " \u00b5s"]);
    }
    if ((x < 0.9995)) {
        return _pymeth_join.call("", [number_words(_pyfunc_op_mult(x, 1000)), " ms"]);
    }
    if ((x < 119.5)) {
        return _pymeth_join.call("", [number_words(x), " s"]);
    }
    if ((x < 7170)) {
        return _pymeth_join.call("", [number_words(x / 60), " min"]);
    }
    if ((x < 172000)) {
        return _pymeth_join.call("", [number_words(x / 3600), " h"]);
    }
    return _pymeth_join.call("", [number_words(x / 86400), " days"]);
};

count_words = function (n, one, many) {
    return (_pyfunc_op_equals(n, 1))? (_pymeth_join.call("", ["1 ", one])) : (_pymeth_join.call("", [fixed(n, 0), " ", many]));
};

tokens_words = function (n) {
    return count_words(n, "token", "tokens");
};

tokens_short = function (n) {
    if (((n >= 1048576) && ((_pyfunc_op_equals((n % 1048576), 0))))) {
        return _pymeth_join.call("", [fixed(n / 1048576, 0), "M"]);
    }
    if (((n >= 1024) && ((_pyfunc_op_equals((n % 1024), 0))))) {
        return _pymeth_join.call("", [fixed(n / 1024, 0), "K"]);
    }
    return fixed(n, 0);
};

percent_words = function (share) {
    if (((share > 0) && (share < 0.0005))) {
        return "under 0.1 %";
    }
    if (((share > 0.995) && (share < 1))) {
        return "over 99 %";
    }
    return _pymeth_join.call("", [((share >= 0.0995))? (fixed(_pyfunc_op_mult(share, 100), 0)) : (trimmed(_pyfunc_op_mult(share, 100), 1)), " %"]);
};

times_words = function (ratio) {
    return _pymeth_join.call("", [number_words(ratio), " times"]);
};

nice_step = function (top, count) {
    var factor, step, stub2_seq, stub3_itr;
    step = 1.0;
    while (_pyfunc_op_mult(step, count) >= top) {
        step = step / 10;
    }
    while ((_pyfunc_op_mult(_pyfunc_op_mult(step, 10), count)) < top) {
        step = _pyfunc_op_mult(step, 10);
    }
    stub2_seq = [2, 5];
    if ((typeof stub2_seq === "object") && (!Array.isArray(stub2_seq))) { stub2_seq = Object.keys(stub2_seq);}
    for (stub3_itr = 0; stub3_itr < stub2_seq.length; stub3_itr += 1) {
        factor = stub2_seq[stub3_itr];
        if (((_pyfunc_op_mult(_pyfunc_op_mult(step, factor), count)) >= top)) {
            return _pyfunc_op_mult(step, factor);
        }
    }
    return _pyfunc_op_mult(step, 10);
};

axis_linear = function (label, top, unit) {
    var step;
    step = nice_step(top / unit, 5);
    return ticked(label, top, unit, step);
};

axis_counts = function (label, top) {
    return ticked(label, top, 1, Math.max(1, nice_step(top, 5)));
};

ticked = function (label, top, unit, step) {
    var at, ticks;
    ticks = [];
    while ((_pyfunc_op_mult(_pyfunc_op_mult(ticks.length, step), unit)) <= top) {
        at = _pyfunc_op_mult(ticks.length, step);
        _pymeth_append.call(ticks, (({at: _pyfunc_op_mult(at, unit), text: number_words(at)})));
    }
    return ({label: label, scale: "linear", min: 0, max: top, ticks: ticks});
};

axis_decades = function (label, low, high, unit) {
    var first, powers, stride, stub4_, stub4_i, stub4_i0, stub4_iter0, ticks;
    first = 1.0;
    while (_pyfunc_op_mult(first, unit) > low) {
        first = first / 10;
    }
    while ((_pyfunc_op_mult(_pyfunc_op_mult(first, 10), unit)) <= low) {
        first = _pyfunc_op_mult(first, 10);
    }
    powers = [first];
    while ((_pyfunc_op_mult(_pyfunc_op_mult(powers[powers.length - 1], 10), unit)) <= high) {
        _pymeth_append.call(powers, _pyfunc_op_mult(powers[powers.length - 1], 10));
    }
    stride = 1 + (Math.floor((powers.length - 1)/7));
    stub4_ = [];stub4_iter0 = _pyfunc_range(0, powers.length, 1);if ((typeof stub4_iter0 === "object") && (!Array.isArray(stub4_iter0))) {stub4_iter0 = Object.keys(stub4_iter0);}for (stub4_i0=0; stub4_i0<stub4_iter0.length; stub4_i0++) {stub4_i = stub4_iter0[stub4_i0];if (!((_pyfunc_op_equals((stub4_i % stride), 0)))) {continue;}{stub4_.push(({at: _pyfunc_op_mult(powers[stub4_i], unit), text: number_words(powers[stub4_i])}));}}
    ticks = stub4_;
    return ({label: label, scale: "log", min: _pyfunc_op_mult(first, unit), max: high, ticks: ticks});
};

powers_between = function (low, high, count) {
    var doublings, first, last, powers, stride, stub5_;
    stub5_ = [1, 0];
    first = stub5_[0];doublings = stub5_[1];
    while (first < low) {
        first = _pyfunc_op_mult(first, 2);
    }
    last = first;
    while (_pyfunc_op_mult(last, 2) <= high) {
        last = _pyfunc_op_mult(last, 2);
        doublings += 1;
    }
    stride = Math.pow(2, (1 + Math.floor(doublings/count)));
    powers = [];
    while (first <= last) {
        _pymeth_append.call(powers, first);
        first = _pyfunc_op_mult(first, stride);
    }
    return powers;
};

axis_bytes = function (label, low, high) {
    var stub6_, stub6_at, stub6_i0, stub6_iter0, ticks;
    stub6_ = [];stub6_iter0 = powers_between(low, high, 6);if ((typeof stub6_iter0 === "object") && (!Array.isArray(stub6_iter0))) {stub6_iter0 = Object.keys(stub6_iter0);}for (stub6_i0=0; stub6_i0<stub6_iter0.length; stub6_i0++) {stub6_at = stub6_iter0[stub6_i0];{stub6_.push(({at: stub6_at, text: bytes_words(stub6_at, 1024)}));}}
    ticks = stub6_;
    return ({label: label, scale: "log", min: low, max: high, ticks: ticks});
};

axis_tokens = function (label, low, high) {
    var stub7_, stub7_at, stub7_i0, stub7_iter0, ticks;
    stub7_ = [];stub7_iter0 = powers_between(low, high, 6);if ((typeof stub7_iter0 === "object") && (!Array.isArray(stub7_iter0))) {stub7_iter0 = Object.keys(stub7_iter0);}for (stub7_i0=0; stub7_i0<stub7_iter0.length; stub7_i0++) {stub7_at = stub7_iter0[stub7_i0];{stub7_.push(({at: stub7_at, text: tokens_short(stub7_at)}));}}
    ticks = stub7_;
    return ({label: label, scale: "log", min: low, max: high, ticks: ticks});
};

bars_panel = function (label, unit, most, bars, marks) {
    var bar, lines, panel, parts, rows, stub10_itr, stub11_, stub11_i0, stub11_iter0, stub11_mark, stub12_, stub8_, stub8_i0, stub8_iter0, stub8_part, stub9_seq;
    marks = (marks === undefined) ? []: marks;
    rows = [];
    stub9_seq = bars;
    if ((typeof stub9_seq === "object") && (!Array.isArray(stub9_seq))) { stub9_seq = Object.keys(stub9_seq);}
    for (stub10_itr = 0; stub10_itr < stub9_seq.length; stub10_itr += 1) {
        bar = stub9_seq[stub10_itr];
        stub8_ = [];stub8_iter0 = bar[1];if ((typeof stub8_iter0 === "object") && (!Array.isArray(stub8_iter0))) {stub8_iter0 = Object.keys(stub8_iter0);}for (stub8_i0=0; stub8_i0<stub8_iter0.length; stub8_i0++) {stub8_part = stub8_iter0[stub8_i0];{stub8_.push(({label: stub8_part[0], value: stub8_part[1], role: stub8_part[2]}));}}
        parts = stub8_;
        _pymeth_append.call(rows, ({label: bar[0], parts: parts}));
    }
    stub11_ = [];stub11_iter0 = marks;if ((typeof stub11_iter0 === "object") && (!Array.isArray(stub11_iter0))) {stub11_iter0 = Object.keys(stub11_iter0);}for (stub11_i0=0; stub11_i0<stub11_iter0.length; stub11_i0++) {stub11_mark = stub11_iter0[stub11_i0];{stub11_.push(({label: stub11_mark[0], value: stub11_mark[1]}));}}
    lines = stub11_;
    panel = ({kind: "bars", label: label, unit: unit, max: most});
    stub12_ = [rows, lines];
    panel["bars"] = stub12_[0];panel["marks"] = stub12_[1];
    return panel;
};

curves_panel = function (label, x, y, lines, points) {
    var curves, line, made, named, stub13_seq, stub14_itr, stub15_, stub15_i0, stub15_iter0, stub15_p;
    points = (points === undefined) ? []: points;
    curves = [];
    stub13_seq = lines;
    if ((typeof stub13_seq === "object") && (!Array.isArray(stub13_seq))) { stub13_seq = Object.keys(stub13_seq);}
    for (stub14_itr = 0; stub14_itr < stub13_seq.length; stub14_itr += 1) {
        line = stub13_seq[stub14_itr];
        made = ({label: line[0], role: line[1], points: line[2], dashed: line[3]});
        _pymeth_append.call(curves, made);
    }
    stub15_ = [];stub15_iter0 = points;if ((typeof stub15_iter0 === "object") && (!Array.isArray(stub15_iter0))) {stub15_iter0 = Object.keys(stub15_iter0);}for (stub15_i0=0; stub15_i0<stub15_iter0.length; stub15_i0++) {stub15_p = stub15_iter0[stub15_i0];{stub15_.push(({label: stub15_p[0], role: stub15_p[1], x: stub15_p[2], y: stub15_p[3]}));}}
    named = stub15_;
    return ({kind: "curves", label: label, x: x, y: y, lines: curves, points: named});
};

cells_panel = function (label, rows, legend) {
    var named, row, slot, slots, stub16_seq, stub17_itr, stub18_, stub18_entry, stub18_i0, stub18_iter0;
    slots = [];
    stub16_seq = rows;
    if ((typeof stub16_seq === "object") && (!Array.isArray(stub16_seq))) { stub16_seq = Object.keys(stub16_seq);}
    for (stub17_itr = 0; stub17_itr < stub16_seq.length; stub17_itr += 1) {
        row = stub16_seq[stub17_itr];
        slot = ({label: row[0], cells: row[1]});
        if ((row.length > 2)) {
            slot["letters"] = row[2];
        }
        _pymeth_append.call(slots, slot);
    }
    stub18_ = [];stub18_iter0 = legend;if ((typeof stub18_iter0 === "object") && (!Array.isArray(stub18_iter0))) {stub18_iter0 = Object.keys(stub18_iter0);}for (stub18_i0=0; stub18_i0<stub18_iter0.length; stub18_i0++) {stub18_entry = stub18_iter0[stub18_i0];{stub18_.push(({role: stub18_entry[0], label: stub18_entry[1]}));}}
    named = stub18_;
    return ({kind: "cells", label: label, rows: slots, legend: named});
};

whole = function (value) {
    return -(Math.floor((-value)/1));
};

visible = function (position, window) {
    return ((window > 0))? (Math.min(position, window)) : (position);
};

triangle = function (n) {
    return (_pyfunc_op_mult(n, (n + 1))) / 2;
};

pairs = function (fresh, seq, window) {
    var short;
    if (((window <= 0) || (seq <= window))) {
        return triangle(seq) - triangle(seq - fresh);
    }
    short = Math.max(0, (window - (seq - fresh)));
    return _pyfunc_op_add(((triangle(_pyfunc_op_add((seq - fresh), short))) - triangle(seq - fresh)), (_pyfunc_op_mult((fresh - short), window)));
};

vector_bytes = function (values, vectors, codec) {
    var groups;
    groups = ((codec["group"] > 0))? (values / codec["group"]) : (vectors);
    if (_pyfunc_op_equals(codec["scale_bits"], 0)) {
        groups = 0;
    }
    return _pyfunc_op_add((whole(_pyfunc_op_mult(values, codec["bits"]) / 8)), (whole(_pyfunc_op_mult(groups, codec["scale_bits"]) / 8)));
};

token_bytes = function (layers, codec) {
    var g, stub19_seq, stub20_itr, total;
    total = 0.0;
    stub19_seq = layers;
    if ((typeof stub19_seq === "object") && (!Array.isArray(stub19_seq))) { stub19_seq = Object.keys(stub19_seq);}
    for (stub20_itr = 0; stub20_itr < stub19_seq.length; stub20_itr += 1) {
        g = stub19_seq[stub20_itr];
        total = _pyfunc_op_add(total, (_pyfunc_op_mult(g["count"], vector_bytes(g["values"], g["vectors"], codec))) / g["every"]);
    }
    return total;
};

group_bytes = function (g, codec, entries) {
    var coded, plain;
    plain = Math.min(entries, codec["residual"]);
    coded = _pyfunc_op_mult((entries - plain), vector_bytes(g["values"], g["vectors"], codec));
    return _pyfunc_op_mult(g["count"], (_pyfunc_op_add(coded, (_pyfunc_op_mult(_pyfunc_op_mult(plain, g["values"]), 2)))));
};

stored_bytes = function (layers, codec, seq) {
    return reserved_bytes(layers, codec, seq, 0);
};

in_blocks = function (tokens, block) {
    return ((block > 1))? (_pyfunc_op_mult(whole(tokens / block), block)) : (tokens);
};

reserved_bytes = function (layers, codec, seq, block) {
    var entries, g, stub21_seq, stub22_itr, total;
    total = 0.0;
    stub21_seq = layers;
    if ((typeof stub21_seq === "object") && (!Array.isArray(stub21_seq))) { stub21_seq = Object.keys(stub21_seq);}
    for (stub22_itr = 0; stub22_itr < stub21_seq.length; stub22_itr += 1) {
        g = stub21_seq[stub22_itr];
        entries = Math.floor(visible(seq, g["window"])/g["every"]);
        total = _pyfunc_op_add(total, _pyfunc_op_add((group_bytes(g, codec, in_blocks(entries, block))), _pyfunc_op_mult(g["count"], g["state"])));
    }
    return total;
};

state_bytes = function (layers) {
    var g, stub23_seq, stub24_itr, total;
    total = 0.0;
    stub23_seq = layers;
    if ((typeof stub23_seq === "object") && (!Array.isArray(stub23_seq))) { stub23_seq = Object.keys(stub23_seq);}
    for (stub24_itr = 0; stub24_itr < stub23_seq.length; stub24_itr += 1) {
        g = stub23_seq[stub24_itr];
        total = _pyfunc_op_add(total, _pyfunc_op_mult(g["count"], g["state"]));
    }
    return total;
};

longest = function (layers, codec, block, batch, budget) {
    var high, low, middle, stub25_;
    if (((_pyfunc_op_mult(batch, reserved_bytes(layers, codec, 1, block))) > budget)) {
        return 0;
    }
    stub25_ = [1, Math.pow(2, 40)];
    low = stub25_[0];high = stub25_[1];
    if (((_pyfunc_op_mult(batch, reserved_bytes(layers, codec, high, block))) <= budget)) {
        return high;
    }
    while ((high - low) > 1) {
        middle = Math.floor(_pyfunc_op_add(low, high)/2);
        if (((_pyfunc_op_mult(batch, reserved_bytes(layers, codec, middle, block))) <= budget)) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
};

experts_read = function (experts, chosen, tokens) {
    return _pyfunc_op_mult(experts, (1 - (Math.pow((1 - (chosen / experts)), tokens))));
};

weights_read = function (facts, tokens) {
    var read, used;
    read = _pyfunc_op_add(facts["product_weights"], facts["head_weights"]);
    if ((facts["experts"] > 0)) {
        used = experts_read(facts["experts"], facts["experts_per_token"], tokens);
        read = _pyfunc_op_add(read, _pyfunc_op_mult(used, facts["expert_weights"]));
    }
    return read;
};

linear_flops = function (facts, tokens, rows) {
    var active;
    active = _pyfunc_op_add(facts["product_weights"], _pyfunc_op_mult(facts["experts_per_token"], facts["expert_weights"]));
    return _pyfunc_op_mult(2, (_pyfunc_op_add(_pyfunc_op_mult(tokens, active), _pyfunc_op_mult(rows, facts["head_weights"]))));
};

head_dims = function (g, fresh, seq) {
    if (((fresh >= seq) && (fresh > 1))) {
        return _pyfunc_op_add(g["full_qk_dim"], g["full_v_dim"]);
    }
    return _pyfunc_op_add(g["qk_dim"], g["v_dim"]);
};

attention_flops = function (layers, fresh, seq) {
    var dims, g, seen, stub26_seq, stub27_itr, total;
    total = 0.0;
    stub26_seq = layers;
    if ((typeof stub26_seq === "object") && (!Array.isArray(stub26_seq))) { stub26_seq = Object.keys(stub26_seq);}
    for (stub27_itr = 0; stub27_itr < stub26_seq.length; stub27_itr += 1) {
        g = stub26_seq[stub27_itr];
        dims = head_dims(g, fresh, seq);
        seen = (pairs(fresh, seq, attended(g))) / g["every"];
        total = _pyfunc_op_add(total, _pyfunc_op_mult((_pyfunc_op_mult((_pyfunc_op_mult(_pyfunc_op_mult(g["count"], 2), g["num_qo_heads"])), dims)), seen));
    }
    return total;
};

attended = function (g) {
    var most;
    most = _pyfunc_op_mult(g["chosen"], g["every"]);
    if (((g["window"] > 0) && (((most <= 0) || (g["window"] < most))))) {
        return g["window"];
    }
    return most;
};

attended_bytes = function (layers, codec, fresh, seq) {
    var entries, g, index, read, stub28_seq, stub29_itr, tokens, total;
    total = 0.0;
    stub28_seq = layers;
    if ((typeof stub28_seq === "object") && (!Array.isArray(stub28_seq))) { stub28_seq = Object.keys(stub28_seq);}
    for (stub29_itr = 0; stub29_itr < stub28_seq.length; stub29_itr += 1) {
        g = stub28_seq[stub29_itr];
        tokens = ((g["window"] > 0))? (Math.min(seq, (_pyfunc_op_add(g["window"], fresh) - 1))) : (seq);
        entries = Math.floor(tokens/g["every"]);
        read = ((g["chosen"] > 0))? (Math.min(entries, (_pyfunc_op_add(g["chosen"], fresh) - 1))) : (entries);
        index = _pyfunc_op_mult((entries - read), vector_bytes(g["index"], 1, codec));
        total = _pyfunc_op_add(total, _pyfunc_op_add(group_bytes(g, codec, read), (_pyfunc_op_mult(g["count"], _pyfunc_op_add(index, g["state"])))));
    }
    return total;
};

activation_bytes = function (layers, fresh, seq) {
    var g, stub30_seq, stub31_itr, total;
    total = 0.0;
    stub30_seq = layers;
    if ((typeof stub30_seq === "object") && (!Array.isArray(stub30_seq))) { stub30_seq = Object.keys(stub30_seq);}
    for (stub31_itr = 0; stub31_itr < stub30_seq.length; stub31_itr += 1) {
        g = stub30_seq[stub31_itr];
        total = _pyfunc_op_add(total, _pyfunc_op_mult((_pyfunc_op_mult((_pyfunc_op_mult(_pyfunc_op_mult(g["count"], fresh), g["num_qo_heads"])), head_dims(g, fresh, seq))), 2));
    }
    return total;
};

pass_work = function (facts, codec, weight_bits, batch, fresh, seq, shared) {
    var g, kv_read, kv_written, layers, stub32_, stub33_seq, stub34_itr, tokens;
    stub32_ = [facts["layers"], _pyfunc_op_mult(batch, fresh)];
    layers = stub32_[0];tokens = stub32_[1];
    kv_read = 0.0;
    if (((fresh < seq) || (fresh <= 1))) {
        kv_read = _pyfunc_op_mult(batch, attended_bytes(layers, codec, fresh, seq));
        if (((batch > 1) && (shared > 0))) {
            kv_read -= _pyfunc_op_mult((batch - 1), shared_saving(layers, codec, fresh, seq, shared));
        }
    } else {
        stub33_seq = layers;
        if ((typeof stub33_seq === "object") && (!Array.isArray(stub33_seq))) { stub33_seq = Object.keys(stub33_seq);}
        for (stub34_itr = 0; stub34_itr < stub33_seq.length; stub34_itr += 1) {
            g = stub33_seq[stub34_itr];
            kv_read = _pyfunc_op_add(kv_read, _pyfunc_op_mult((_pyfunc_op_mult((_pyfunc_op_mult(_pyfunc_op_mult(batch, g["count"]), Math.floor(seq/g["every"]))), g["values"])), 2));
        }
    }
    kv_written = _pyfunc_op_add((_pyfunc_op_mult(tokens, token_bytes(layers, codec))), (_pyfunc_op_mult(batch, state_bytes(layers))));
    return ({linear_flops: linear_flops(facts, tokens, batch), weight_bytes: (_pyfunc_op_mult(weights_read(facts, tokens), weight_bits)) / 8, attention_flops: _pyfunc_op_mult(batch, attention_flops(layers, fresh, seq)), kv_bytes: kv_read, kv_written: kv_written, activation_bytes: _pyfunc_op_mult(batch, activation_bytes(layers, fresh, seq))});
};

shared_saving = function (layers, codec, fresh, seq, shared) {
    var entries, first, g, stub35_seq, stub36_itr, total;
    total = 0.0;
    stub35_seq = layers;
    if ((typeof stub35_seq === "object") && (!Array.isArray(stub35_seq))) { stub35_seq = Object.keys(stub35_seq);}
    for (stub36_itr = 0; stub36_itr < stub35_seq.length; stub36_itr += 1) {
        g = stub35_seq[stub36_itr];
        first = ((g["window"] > 0))? (Math.max(0, (((seq - fresh) + 1) - g["window"]))) : (0);
        entries = Math.floor((Math.max(0, ((Math.min(shared, (seq - codec["residual"]))) - first)))/g["every"]);
        if ((g["chosen"] > 0)) {
            entries = Math.min(entries, g["chosen"]);
        }
        total = _pyfunc_op_add(total, _pyfunc_op_mult(_pyfunc_op_mult(g["count"], entries), vector_bytes(g["values"], g["vectors"], codec)));
    }
    return total;
};

uncached_flops = function (facts, prompt, fresh) {
    var attention, i, linear, passes, stub37_;
    stub37_ = [0.0, 0.0];
    passes = stub37_[0];attention = stub37_[1];
    for (i = 0; i < _pyfunc_int(fresh); i += 1) {
        passes = _pyfunc_op_add(passes, _pyfunc_op_add(prompt, i));
        attention = _pyfunc_op_add(attention, attention_flops(facts["layers"], _pyfunc_op_add(prompt, i), _pyfunc_op_add(prompt, i)));
    }
    linear = linear_flops(facts, passes, passes);
    return ({tokens: passes, linear: linear, attention: attention});
};

cached_flops = function (facts, prompt, fresh) {
    var attention, passes;
    passes = _pyfunc_op_add(prompt, fresh) - 1;
    attention = attention_flops(facts["layers"], prompt, prompt);
    attention = _pyfunc_op_add(attention, attention_flops(facts["layers"], fresh - 1, passes));
    return ({tokens: passes, linear: linear_flops(facts, passes, passes), attention: attention});
};

seconds = function (flops, nbytes, flops_per_s, bytes_per_s) {
    return Math.max((flops / flops_per_s), (nbytes / bytes_per_s));
};

tokens_to_amortise = function (low, high, once) {
    return once / (high - low);
};

layers_on_one = function (layers, gpus) {
    var g, heads, name, one, part, same, state, stub38_, stub39_, stub40_seq, stub41_itr, stub42_seq, stub43_itr, values, vectors;
    part = [];
    stub42_seq = layers;
    if ((typeof stub42_seq === "object") && (!Array.isArray(stub42_seq))) { stub42_seq = Object.keys(stub42_seq);}
    for (stub43_itr = 0; stub43_itr < stub42_seq.length; stub43_itr += 1) {
        g = stub42_seq[stub43_itr];
        stub38_ = [g["values"], g["vectors"]];
        values = stub38_[0];vectors = stub38_[1];
        if ((vectors > 1)) {
            vectors = _pyfunc_op_mult(2, (whole((g["vectors"] / 2) / gpus)));
            values = _pyfunc_op_add((_pyfunc_op_mult(((g["values"] - g["index"]) / g["vectors"]), vectors)), g["index"]);
        }
        stub39_ = [whole(g["num_qo_heads"] / gpus), whole(g["state"] / gpus)];
        heads = stub39_[0];state = stub39_[1];
        one = ({values: values, vectors: vectors, num_qo_heads: heads, state: state});
        same = ["count", "window", "qk_dim", "v_dim", "full_qk_dim", "full_v_dim"];
        stub40_seq = _pyfunc_op_add(same, ["every", "index", "chosen"]);
        if ((typeof stub40_seq === "object") && (!Array.isArray(stub40_seq))) { stub40_seq = Object.keys(stub40_seq);}
        for (stub41_itr = 0; stub41_itr < stub40_seq.length; stub41_itr += 1) {
            name = stub40_seq[stub41_itr];
            one[name] = g[name];
        }
        _pymeth_append.call(part, one);
    }
    return part;
};

batched_time = function (tokens, ridge) {
    return Math.max(1, (tokens / ridge));
};

most_blocks = function (tokens, block) {
    return (whole((tokens - 1) / block)) + 1;
};

most_held = function (window, reserve, step, block) {
    var tokens;
    if (((window <= 0) || _pyfunc_op_equals(reserve, "all"))) {
        return 0;
    }
    if (_pyfunc_op_equals(reserve, "transformers")) {
        return window - 1;
    }
    tokens = _pyfunc_op_add((window - 1), step);
    if (_pyfunc_op_equals(reserve, "vllm")) {
        return _pyfunc_op_mult((whole(tokens / block) + 1), block);
    }
    return ((block > 1))? (_pyfunc_op_mult(most_blocks(tokens, block), block)) : (tokens);
};

group_size = function (layers) {
    var fewest, g, most, stub44_, stub45_, stub46_seq, stub47_itr;
    stub44_ = [layers[0]["count"], layers[0]["count"]];
    fewest = stub44_[0];most = stub44_[1];
    stub46_seq = layers;
    if ((typeof stub46_seq === "object") && (!Array.isArray(stub46_seq))) { stub46_seq = Object.keys(stub46_seq);}
    for (stub47_itr = 0; stub47_itr < stub46_seq.length; stub47_itr += 1) {
        g = stub46_seq[stub47_itr];
        stub45_ = [Math.min(fewest, g["count"]), Math.max(most, g["count"])];
        fewest = stub45_[0];most = stub45_[1];
    }
    return ((most < _pyfunc_op_mult(fewest, 1.5)))? (most) : (fewest);
};

layers_as_held = function (layers, reserve, step, block, budgets) {
    var g, held, i, size;
    held = layers_on_one(layers, 1);
    size = group_size(layers);
    for (i = 0; i < held.length; i += 1) {
        g = held[i];
        if (((g["window"] <= 0) && (budgets[i] > 0))) {
            g["window"] = _pyfunc_op_add(budgets[i], step);
        } else {
            g["window"] = most_held(g["window"], reserve, step, block);
        }
        if (_pyfunc_op_equals(reserve, "vllm")) {
            g["count"] = _pyfunc_op_mult(whole(g["count"] / size), size);
        }
    }
    return held;
};

WEIGHT_BITS = _pyfunc_create_dict("bfloat16", 16, "int8", 8, "int4-g128", 4.25);
memory_scene = function (settings, tables) {
    var codec, facts, gpu, kv, requests, title, where;
    facts = tables["models"][settings["model"]];
    gpu = tables["gpus"][settings["gpu"]];
    codec = tables["codecs"][settings["kv"]];
    kv = memory_bytes(facts, gpu, codec, settings);
    where = _pymeth_join.call("", (["one ", gpu["title"]]));
    if ((settings["gpus"] > 1)) {
        where = _pymeth_join.call("", ([fixed(settings["gpus"], 0), " \u00d7 ", gpu["title"]]));
    }
    requests = count_words(settings["batch"], "request", "requests");
    title = _pymeth_join.call("", ([facts["title"], " on ", where, ": ", requests, " of ", tokens_words(settings["context"])]));
    return ({title: title, summary: memory_summary(facts, gpu, settings, kv), formula: memory_formula(facts, codec, settings, kv), numbers: memory_numbers(facts, codec, settings, kv), panels: [memory_bar(gpu, settings, kv), memory_curve(facts, codec, settings, kv)]});
};

memory_bytes = function (facts, gpu, codec, settings) {
    var batch, bits, block, cautious, context, everything, held, layers, left, mine, needed, payload, reserved, stored, stub48_, unevicted, usable, weights, whole_model;
    stub48_ = [settings["batch"], settings["context"], settings["block"]];
    batch = stub48_[0];context = stub48_[1];block = stub48_[2];
    layers = layers_on_one(facts["layers"], settings["gpus"]);
    bits = WEIGHT_BITS[settings["weights"]];
    weights = weight_bytes_on_one(facts, bits, settings["gpus"]);
    stored = layers_held(layers, settings, "needed", 0);
    mine = stored_bytes(stored, codec, context);
    payload = stored_bytes(stored, payload_only(codec), context);
    reserved = layers_held(layers, settings, held_rule(layers, settings), block);
    held = _pyfunc_op_mult(batch, reserved_bytes(reserved, codec, context, block));
    needed = layers_held(layers, settings, "needed", block);
    unevicted = layers_reserved(layers, "needed", block);
    usable = gpu["usable"];
    cautious = _pyfunc_op_mult(usable, (1 - RESERVE));
    left = (usable - weights) - held;
    whole_model = layers_held(facts["layers"], settings, "needed", 0);
    everything = reserved_bytes(layers_keeping_all(layers), codec, context, block);
    return ({bits: bits, weights: weights, stored: stored_bytes(whole_model, codec, context), mine: mine, payload: _pyfunc_op_mult(batch, (payload - state_bytes(layers))), state: _pyfunc_op_mult(batch, state_bytes(layers)), scales: _pyfunc_op_mult(batch, (mine - payload)), waste: held - _pyfunc_op_mult(batch, mine), held: held, needed: _pyfunc_op_mult(batch, reserved_bytes(needed, codec, context, block)), unevicted: _pyfunc_op_mult(batch, reserved_bytes(unevicted, codec, context, block)), kept_all: _pyfunc_op_mult(batch, everything), usable: usable, left: left, reserve: Math.max(0, (Math.min(_pyfunc_op_mult(usable, RESERVE), left))), free: Math.max(0, (left - _pyfunc_op_mult(usable, RESERVE))), longest_low: longest(reserved, codec, block, batch, cautious - weights), longest_high: longest(reserved, codec, block, batch, usable - weights), requests_low: requests_that_fit(reserved, codec, context, block, cautious - weights), requests_high: requests_that_fit(reserved, codec, context, block, usable - weights)});
};

evicts = function (layers, settings) {
    var g, stub49_seq, stub50_itr;
    stub49_seq = layers;
    if ((typeof stub49_seq === "object") && (!Array.isArray(stub49_seq))) { stub49_seq = Object.keys(stub49_seq);}
    for (stub50_itr = 0; stub50_itr < stub49_seq.length; stub50_itr += 1) {
        g = stub49_seq[stub50_itr];
        if (((g["window"] <= 0) && (g["vectors"] > 0))) {
            return settings["budget"] > 0;
        }
    }
    return false;
};

tokens_kept = function (layers, settings) {
    var most;
    most = (_pyfunc_truthy(evicts(layers, settings)))? (settings["budget"] + 1) : (0);
    return visible(settings["context"], most);
};

held_rule = function (layers, settings) {
    var g, plain, stub51_seq, stub52_itr;
    plain = true;
    stub51_seq = layers;
    if ((typeof stub51_seq === "object") && (!Array.isArray(stub51_seq))) { stub51_seq = Object.keys(stub51_seq);}
    for (stub52_itr = 0; stub52_itr < stub51_seq.length; stub52_itr += 1) {
        g = stub51_seq[stub52_itr];
        if (((g["state"] > 0) || (g["every"] > 1) || (g["index"] > 0))) {
            plain = false;
        }
    }
    if (((_pyfunc_truthy(evicts(layers, settings))) || (_pyfunc_op_equals(settings["held"], "vllm") && ((!_pyfunc_truthy(plain)))))) {
        return "needed";
    }
    return settings["held"];
};

layers_held = function (layers, settings, rule, block) {
    return layers_as_held(layers, rule, 1, block, (function list_comprehension (iter0) {var res = [];var g, i0;if ((typeof iter0 === "object") && (!Array.isArray(iter0))) {iter0 = Object.keys(iter0);}for (i0=0; i0<iter0.length; i0++) {g = iter0[i0];{res.push(settings["budget"]);}}return res;}).call(this, layers));
};

GIB = 1073741824;
stub53_ = [512, 1048576];
FIRST = stub53_[0];LAST = stub53_[1];
memory_bar = function (gpu, settings, kv) {
    var mark, name, parts, total, usable;
    parts = [["weights", kv["weights"] / GIB, "weights"], ["keys and values", kv["payload"] / GIB, "cached"]];
    if ((kv["state"] > 0)) {
        _pymeth_append.call(parts, (["states", kv["state"] / GIB, "query"]));
    }
    if ((kv["scales"] > 0)) {
        _pymeth_append.call(parts, (["their scales", kv["scales"] / GIB, "value"]));
    }
    if ((kv["waste"] > 0)) {
        _pymeth_append.call(parts, (["held, not needed", kv["waste"] / GIB, "muted"]));
    }
    if ((kv["reserve"] > 0)) {
        _pymeth_append.call(parts, (["reserve", kv["reserve"] / GIB, "grid"]));
    }
    if ((kv["free"] > 0)) {
        _pymeth_append.call(parts, (["free", kv["free"] / GIB, "free"]));
    }
    usable = kv["usable"] / GIB;
    total = Math.max(usable, (usable - (kv["left"] / GIB)));
    name = (_pyfunc_op_equals(settings["gpus"], 1))? (gpu["title"]) : (_pymeth_join.call("", (["each ", gpu["title"]])));
    mark = [_pymeth_join.call("", (["usable: ", bytes_words(kv["usable"], 1024)])), usable];
    return bars_panel("What one GPU holds", "GiB", _pyfunc_op_mult(total, 1.04), [[name, parts]], [mark]);
};

curve_contexts = function (here) {
    var at, contexts, grid, octave, quarter, stub54_seq, stub55_itr;
    grid = [FIRST, _pyfunc_op_mult(FIRST, 1.5)];
    for (octave = 0; octave < 10; octave += 1) {
        for (quarter = 0; quarter < 4; quarter += 1) {
            _pymeth_append.call(grid, ((_pyfunc_op_mult((_pyfunc_op_mult(FIRST, Math.pow(2, octave))), (4 + quarter))) / 2));
        }
    }
    _pymeth_append.call(grid, LAST);
    contexts = [];
    stub54_seq = grid;
    if ((typeof stub54_seq === "object") && (!Array.isArray(stub54_seq))) { stub54_seq = Object.keys(stub54_seq);}
    for (stub55_itr = 0; stub55_itr < stub54_seq.length; stub55_itr += 1) {
        at = stub54_seq[stub55_itr];
        if (((contexts.length > 0) && (contexts[contexts.length - 1] < here) && (here < at))) {
            _pymeth_append.call(contexts, here);
        }
        _pymeth_append.call(contexts, at);
    }
    return contexts;
};

memory_curve = function (facts, codec, settings, kv) {
    var batch, block, bottom, compared, contexts, curve, edge, ends, here, high, label, layers, limit, lines, name, other, reserved, room, rule, stub56_, stub57_, stub57_c, stub57_i0, stub57_iter0, stub58_, stub59_, stub60_, stub61_, stub61_c, stub61_i0, stub61_iter0, stub62_, top, x, y;
    stub56_ = [settings["batch"], settings["block"]];
    batch = stub56_[0];block = stub56_[1];
    layers = layers_on_one(facts["layers"], settings["gpus"]);
    contexts = curve_contexts(settings["context"]);
    rule = held_rule(layers, settings);
    reserved = layers_held(layers, settings, rule, block);
    stub57_ = [];stub57_iter0 = contexts;if ((typeof stub57_iter0 === "object") && (!Array.isArray(stub57_iter0))) {stub57_iter0 = Object.keys(stub57_iter0);}for (stub57_i0=0; stub57_i0<stub57_iter0.length; stub57_i0++) {stub57_c = stub57_iter0[stub57_i0];{stub57_.push([stub57_c, _pyfunc_op_mult(batch, reserved_bytes(reserved, codec, stub57_c, block))]);}}
    curve = stub57_;
    lines = [["KV cache", "cached", curve, false]];
    high = Math.max((curve[curve.length - 1][1]), kv["usable"]);
    stub58_ = [layers_keeping_all(layers), "no windows"];
    other = stub58_[0];name = stub58_[1];
    if (_pyfunc_truthy(evicts(layers, settings))) {
        stub59_ = [layers_reserved(layers, "needed", block), "no eviction"];
        other = stub59_[0];name = stub59_[1];
    } else if (_pyfunc_op_equals(rule, "all")) {
        stub60_ = [layers_reserved(layers, "needed", block), "what is needed"];
        other = stub60_[0];name = stub60_[1];
    }
    stub61_ = [];stub61_iter0 = contexts;if ((typeof stub61_iter0 === "object") && (!Array.isArray(stub61_iter0))) {stub61_iter0 = Object.keys(stub61_iter0);}for (stub61_i0=0; stub61_i0<stub61_iter0.length; stub61_i0++) {stub61_c = stub61_iter0[stub61_i0];{stub61_.push([stub61_c, _pyfunc_op_mult(batch, reserved_bytes(other, codec, stub61_c, block))]);}}
    compared = stub61_;
    if ((!_pyfunc_op_equals((compared[compared.length - 1][1]), (curve[curve.length - 1][1])))) {
        _pymeth_append.call(lines, [name, "recomputed", compared, true]);
        high = Math.max(high, (compared[compared.length - 1][1]));
    }
    stub62_ = [16777216.0, 4398046511104.0];
    bottom = stub62_[0];top = stub62_[1];
    while (bottom > (curve[0][1])) {
        bottom = bottom / 4;
    }
    while (top < high) {
        top = _pyfunc_op_mult(top, 4);
    }
    room = kv["usable"] - kv["weights"];
    if ((room > bottom)) {
        ends = [[FIRST, room], [LAST, room]];
        _pymeth_append.call(lines, ["GPU full", "ink", ends, true]);
    }
    limit = facts["max_context"];
    if (((limit > FIRST) && (limit < LAST))) {
        edge = [[limit, bottom], [limit, top]];
        _pymeth_append.call(lines, ["model's limit", "muted", edge, true]);
    }
    label = "The cache against the context";
    if ((settings["gpus"] > 1)) {
        label = "The cache on each GPU against the context";
    }
    x = axis_tokens("context in tokens (1K = 1,024)", FIRST, LAST);
    y = axis_bytes("keys and values", bottom, top);
    here = [bytes_words(kv["held"], 1024), "cached", settings["context"], kv["held"]];
    return curves_panel(label, x, y, lines, [here]);
};

RESERVE = 0.1;
ENDLESS = 1099511627776;
memory_summary = function (facts, gpu, settings, kv) {
    var compared, held, needed, over, place, ratio, reserve, rule, sentences, stub63_, usable, weights, windows, without;
    usable = bytes_words(kv["usable"], 1024);
    place = _pymeth_join.call("", (["the ", usable, " of one ", gpu["title"]]));
    if ((settings["gpus"] > 1)) {
        place = _pymeth_join.call("", (["the ", usable, " of each ", gpu["title"]]));
    }
    weights = bytes_words(kv["weights"], 1024);
    held = bytes_words(kv["held"], 1024);
    ratio = kv["held"] / kv["weights"];
    compared = ((ratio >= 1))? (times_words(ratio)) : (_pymeth_join.call("", [percent_words(ratio), " of"]));
    sentences = [_pymeth_join.call("", ["The weights take ", weights, ", the keys and values ", held, ": ", compared, " the weights."])];
    if ((kv["weights"] > kv["usable"])) {
        sentences = [_pymeth_join.call("", ["The weights alone take ", weights, ", more than ", place, ": they need more GPUs or fewer bits. The keys and values would add ", held, "."])];
    } else if ((kv["left"] < 0)) {
        over = bytes_words(-kv["left"], 1024);
        _pymeth_append.call(sentences, _pymeth_join.call("", ["That is ", over, " more than ", place, ": it does not fit."]));
    } else if (_pyfunc_op_equals(kv["free"], 0)) {
        _pymeth_append.call(sentences, (_pymeth_join.call("", (["It fits on paper only: ", bytes_words(kv["left"], 1024), " of ", place, " are left, less than the ", percent_words(RESERVE), " that an engine keeps for everything else."]))));
    } else {
        reserve = bytes_words(kv["reserve"], 1024);
        _pymeth_append.call(sentences, (_pymeth_join.call("", (["Of ", place, ", ", bytes_words(kv["free"], 1024), " stay free, in addition to a reserve of ", reserve, "."]))));
    }
    if ((settings["budget"] > 0)) {
        _pymeth_append.call(sentences, budget_words(facts["layers"], settings, kv));
    }
    stub63_ = [settings["held"], (Math.max.apply(null, (function list_comprehension (iter0) {var res = [];var g, i0;if ((typeof iter0 === "object") && (!Array.isArray(iter0))) {iter0 = Object.keys(iter0);}for (i0=0; i0<iter0.length; i0++) {g = iter0[i0];{res.push(g["window"]);}}return res;}).call(this, facts["layers"]))) > 0];
    rule = stub63_[0];windows = stub63_[1];
    if (_pyfunc_truthy(evicts(facts["layers"], settings))) {
        if ((((!_pyfunc_op_equals(rule, "needed"))) && _pyfunc_truthy(windows))) {
            _pymeth_append.call(sentences, "A cache that evicts frees what its windows have passed: they hold what the next query sees.");
        }
    } else if ((_pyfunc_op_equals(rule, "needed") && (kv["kept_all"] > kv["held"]))) {
        without = bytes_words(kv["kept_all"], 1024);
        _pymeth_append.call(sentences, _pymeth_join.call("", ["Without the windows of its layers the cache would take ", without, "."]));
    } else if ((kv["held"] > kv["needed"])) {
        needed = bytes_words(kv["needed"], 1024);
        _pymeth_append.call(sentences, _pymeth_join.call("", ["The tokens that the next queries see take ", needed, "."]));
    } else if ((((!_pyfunc_op_equals(rule, "needed"))) && ((!_pyfunc_truthy(windows))))) {
        _pymeth_append.call(sentences, "The layers of this model have no windows, so they hold every token.");
    }
    if ((settings["context"] > facts["max_context"])) {
        _pymeth_append.call(sentences, (_pymeth_join.call("", (["The model reads at most ", tokens_words(facts["max_context"]), "."]))));
    }
    if (_pyfunc_truthy(uneven(facts["layers"], settings["gpus"]))) {
        _pymeth_append.call(sentences, "The heads do not divide evenly: the numbers are of the GPU that holds most.");
    }
    if (_pyfunc_truthy(unconfirmed(gpu, "usable"))) {
        _pymeth_append.call(sentences, "The usable memory of this GPU is an unconfirmed figure.");
    }
    return _pymeth_join.call(" ", sentences);
};

budget_words = function (layers, settings, kv) {
    var each, left, stub64_, without;
    if ((!_pyfunc_truthy(evicts(layers, settings)))) {
        return "Every layer of this model has a window, so a budget changes nothing.";
    }
    if ((tokens_kept(layers, settings) >= settings["context"])) {
        return "A request is no longer than the budget, so nothing is evicted.";
    }
    each = (((Math.max.apply(null, (function list_comprehension (iter0) {var res = [];var g, i0;if ((typeof iter0 === "object") && (!Array.isArray(iter0))) {iter0 = Object.keys(iter0);}for (i0=0; i0<iter0.length; i0++) {g = iter0[i0];{res.push(g["window"]);}}return res;}).call(this, layers))) > 0))? ("each layer without a window") : ("each layer");
    stub64_ = [tokens_words(settings["budget"]), bytes_words(kv["unevicted"], 1024)];
    left = stub64_[0];without = stub64_[1];
    return _pymeth_join.call("", ["Eviction leaves ", left, " in ", each, "; without it the cache would take ", without, "."]);
};

uneven = function (layers, gpus) {
    var g, heads, stub65_seq, stub66_itr;
    stub65_seq = layers;
    if ((typeof stub65_seq === "object") && (!Array.isArray(stub65_seq))) { stub65_seq = Object.keys(stub65_seq);}
    for (stub66_itr = 0; stub66_itr < stub65_seq.length; stub66_itr += 1) {
        g = stub65_seq[stub66_itr];
        if ((!_pyfunc_op_equals((g["num_qo_heads"] % gpus), 0))) {
            return true;
        }
        heads = g["vectors"] / 2;
        if (((g["vectors"] > 1) && ((!_pyfunc_op_equals((heads % gpus), 0))) && ((!_pyfunc_op_equals((gpus % heads), 0))))) {
            return true;
        }
    }
    return false;
};

unconfirmed = function (gpu, name) {
    return _pyfunc_op_contains(name, gpu["unconfirmed"]);
};

interval_words = function (low, high, one, many, endless) {
    if ((high <= 0)) {
        return "none";
    }
    if ((low >= ENDLESS)) {
        return endless;
    }
    if ((high >= ENDLESS)) {
        return _pymeth_join.call("", [count_words(low, one, many), " or no limit"]);
    }
    if ((low >= high)) {
        return count_words(high, one, many);
    }
    return _pymeth_join.call("", [fixed(low, 0), " to ", count_words(high, one, many)]);
};

memory_numbers = function (facts, codec, settings, kv) {
    var context, endless, high, label, left, low, on_one, stub67_, tokens;
    on_one = ((settings["gpus"] > 1))? (" on each GPU") : ("");
    label = ((kv["left"] >= 0))? ("Free") : ("Missing");
    left = bytes_words(_pyfunc_abs(kv["left"]), 1024);
    context = tokens_words(settings["context"]);
    endless = "no limit: windows bound it";
    if (_pyfunc_truthy(evicts(facts["layers"], settings))) {
        endless = "no limit: the budget bounds it";
    }
    tokens = interval_words(kv["longest_low"], kv["longest_high"], "token", "tokens", endless);
    stub67_ = [kv["requests_low"], kv["requests_high"]];
    low = stub67_[0];high = stub67_[1];
    return [({label: "A token", text: bytes_exact(token_bytes(facts["layers"], codec))}), ({label: "A request", text: bytes_words(kv["stored"], 1024)}), ({label: _pymeth_join.call("", ["All requests", on_one]), text: bytes_words(kv["held"], 1024)}), ({label: _pymeth_join.call("", [label, on_one, ", reserve included"]), text: left}), ({label: "Empty in a last block", text: empty_words(facts["layers"], settings)}), ({label: _pymeth_join.call("", (["Longest context of ", count_words(settings["batch"], "request", "requests")])), text: tokens}), ({label: _pymeth_join.call("", ["Requests of ", context, " that fit"]), text: interval_words(low, high, "request", "requests", endless)})];
};

empty_words = function (layers, settings) {
    var block, here, stub68_, tokens;
    stub68_ = [settings["block"], tokens_kept(layers, settings)];
    block = stub68_[0];tokens = stub68_[1];
    if ((block <= 1)) {
        return "nothing, blocks of 1 token";
    }
    here = tokens_words(in_blocks(tokens, block) - tokens);
    return _pymeth_join.call("", [here, " of at most ", fixed(block - 1, 0)]);
};

bits_words = function (bits) {
    if ((bits < 8)) {
        return _pymeth_join.call("", ["1/", fixed(8 / bits, 0), " byte"]);
    }
    return (_pyfunc_op_equals(bits, 8))? ("1 byte") : (_pymeth_join.call("", [trimmed(bits / 8, 3), " bytes"]));
};

group_name = function (g) {
    var name;
    name = (_pyfunc_op_equals(g["count"], 1))? ("1 layer") : (_pymeth_join.call("", ([fixed(g["count"], 0), " layers"])));
    return ((g["window"] > 0))? (_pymeth_join.call("", ([name, " (window ", fixed(g["window"], 0), ")"]))) : (name);
};

token_line = function (g, codec) {
    var dims, heads, index, plain, rope, size, total, unit;
    if ((g["state"] > 0)) {
        total = bytes_exact(_pyfunc_op_mult(g["count"], g["state"]));
        return _pymeth_join.call("", ([group_name(g), " \u00d7 ", bytes_exact(g["state"]), " of state = ", total, " per request"]));
    }
    plain = payload_only(codec);
    total = _pyfunc_op_mult(g["count"], vector_bytes(g["values"], g["vectors"], plain));
    size = _pymeth_join.call("", ([bits_words(codec["bits"]), " = ", bytes_exact(total)]));
    unit = ((g["every"] <= 1))? ("per token") : (_pymeth_join.call("", (["for every ", fixed(g["every"], 0), " tokens"])));
    index = ((g["index"] > 0))? (_pymeth_join.call("", ([" + ", fixed(g["index"], 0), " index"]))) : ("");
    if (_pyfunc_op_equals(g["vectors"], 1)) {
        rope = fixed(g["qk_dim"] - g["v_dim"], 0);
        dims = _pymeth_join.call("", (["(", fixed(g["v_dim"], 0), " latent + ", rope, " rope", index, ")"]));
        return _pymeth_join.call("", [group_name(g), " \u00d7 ", dims, " \u00d7 ", size, " ", unit]);
    }
    heads = fixed(g["vectors"] / 2, 0);
    dims = _pymeth_join.call("", ([heads, " kv heads \u00d7 ", fixed((g["values"] - g["index"]) / g["vectors"], 0)]));
    if ((g["index"] > 0)) {
        return _pymeth_join.call("", [group_name(g), " \u00d7 (2 \u00d7 ", dims, index, ") \u00d7 ", size, " ", unit]);
    }
    return _pymeth_join.call("", ["2 \u00d7 ", group_name(g), " \u00d7 ", dims, " \u00d7 ", size, " ", unit]);
};

scale_line = function (layers, codec) {
    var count, each, g, groups, size, stub69_seq, stub70_itr, total;
    total = token_bytes(layers, codec) - (token_bytes(layers, payload_only(codec)));
    count = 0.0;
    stub69_seq = layers;
    if ((typeof stub69_seq === "object") && (!Array.isArray(stub69_seq))) { stub69_seq = Object.keys(stub69_seq);}
    for (stub70_itr = 0; stub70_itr < stub69_seq.length; stub70_itr += 1) {
        g = stub69_seq[stub70_itr];
        groups = ((codec["group"] > 0))? (g["values"] / codec["group"]) : (g["vectors"]);
        count = _pyfunc_op_add(count, _pyfunc_op_mult(g["count"], groups));
    }
    each = "vectors";
    if ((codec["group"] > 0)) {
        each = _pymeth_join.call("", (["groups of ", fixed(codec["group"], 0)]));
    }
    size = bits_words(codec["scale_bits"]);
    return _pymeth_join.call("", ["+ ", trimmed(count, 1), " ", each, " \u00d7 ", size, " of scale = ", bytes_exact(total), " per token"]);
};

request_line = function (layers, codec, context, stored) {
    var each, entries, g, last, simple, stub71_seq, stub72_itr, terms, text, what;
    terms = [];
    simple = 0.0;
    stub71_seq = layers;
    if ((typeof stub71_seq === "object") && (!Array.isArray(stub71_seq))) { stub71_seq = Object.keys(stub71_seq);}
    for (stub72_itr = 0; stub72_itr < stub71_seq.length; stub72_itr += 1) {
        g = stub71_seq[stub72_itr];
        if ((g["state"] > 0)) {
            _pymeth_append.call(terms, (bytes_exact(_pyfunc_op_mult(g["count"], g["state"]))));
            simple = _pyfunc_op_add(simple, _pyfunc_op_mult(g["count"], g["state"]));
            continue;
        }
        entries = Math.floor(visible(context, g["window"])/g["every"]);
        each = _pyfunc_op_mult(g["count"], vector_bytes(g["values"], g["vectors"], codec));
        what = ((g["every"] <= 1))? (tokens_words(entries)) : (_pymeth_join.call("", [fixed(entries, 0), " entries"]));
        _pymeth_append.call(terms, (_pymeth_join.call("", [what, " \u00d7 ", bytes_exact(each)])));
        simple = _pyfunc_op_add(simple, _pyfunc_op_mult(entries, each));
    }
    text = _pymeth_join.call(" + ", terms);
    if ((stored > simple)) {
        last = tokens_words(Math.min(context, codec["residual"]));
        text = _pymeth_join.call("", [text, " + ", bytes_exact(stored - simple), " more for the last ", last, ", kept in 16 bits"]);
    }
    return _pymeth_join.call("", [text, " = ", bytes_exact(stored), " per request"]);
};

memory_formula = function (facts, codec, settings, kv) {
    var batch, context, each, gpus, kept, layers, lines, stored, stub73_, stub74_, stub74_g, stub74_i0, stub74_iter0, weights, where;
    stub73_ = [settings["gpus"], settings["batch"], settings["context"]];
    gpus = stub73_[0];batch = stub73_[1];context = stub73_[2];
    layers = facts["layers"];
    stub74_ = [];stub74_iter0 = layers;if ((typeof stub74_iter0 === "object") && (!Array.isArray(stub74_iter0))) {stub74_iter0 = Object.keys(stub74_iter0);}for (stub74_i0=0; stub74_i0<stub74_iter0.length; stub74_i0++) {stub74_g = stub74_iter0[stub74_i0];{stub74_.push(token_line(stub74_g, codec));}}
    lines = stub74_;
    if ((codec["scale_bits"] > 0)) {
        _pymeth_append.call(lines, scale_line(layers, codec));
    }
    if ((lines.length > 1)) {
        _pymeth_append.call(lines, (_pymeth_join.call("", ["together ", bytes_exact(token_bytes(layers, codec)), " per token"])));
    }
    kept = tokens_kept(layers, settings);
    if ((kept < context)) {
        _pymeth_append.call(lines, eviction_line(layers, settings, kept));
    }
    stored = layers_held(layers, settings, "needed", 0);
    _pymeth_append.call(lines, request_line(stored, codec, context, kv["stored"]));
    if ((gpus > 1)) {
        _pymeth_append.call(lines, share_line(layers, gpus, kv["mine"]));
    }
    each = kv["mine"];
    where = ((gpus > 1))? ("on each GPU") : ("in all");
    if ((kv["held"] > _pyfunc_op_mult(batch, each))) {
        each = kv["held"] / batch;
        _pymeth_append.call(lines, (_pymeth_join.call("", [held_words(layers, settings), ": ", bytes_exact(each), " per request"])));
    }
    _pymeth_append.call(lines, (_pymeth_join.call("", ([fixed(batch, 0), " \u00d7 ", bytes_exact(each), " = ", bytes_words(kv["held"], 1024), " ", where]))));
    weights = _pymeth_join.call("", ([fixed(facts["parameters"], 0), " parameters \u00d7 ", trimmed(kv["bits"], 2), " bits / 8"]));
    if ((gpus > 1)) {
        weights = _pymeth_join.call("", [weights, " / ", fixed(gpus, 0), " GPUs"]);
    }
    _pymeth_append.call(lines, (_pymeth_join.call("", ([weights, " = ", bytes_words(kv["weights"], 1024), " of weights ", where]))));
    return lines;
};

eviction_line = function (layers, settings, kept) {
    var full, g, left, named, stub75_seq, stub76_itr;
    full = 0;
    stub75_seq = layers;
    if ((typeof stub75_seq === "object") && (!Array.isArray(stub75_seq))) { stub75_seq = Object.keys(stub75_seq);}
    for (stub76_itr = 0; stub76_itr < stub75_seq.length; stub76_itr += 1) {
        g = stub75_seq[stub76_itr];
        if (((g["window"] <= 0) && (g["vectors"] > 0))) {
            full = _pyfunc_op_add(full, g["count"]);
        }
    }
    named = ((full > 1))? (_pymeth_join.call("", ["in each of ", fixed(full, 0), " layers"])) : ("in 1 layer");
    left = tokens_words(settings["budget"]);
    return _pymeth_join.call("", ["eviction leaves ", left, " ", named, ", and the step adds 1: ", tokens_words(kept)]);
};

held_words = function (layers, settings) {
    var block, context, count, full, g, passed, rule, size, stub77_, stub78_, stub79_seq, stub80_itr, tokens;
    stub77_ = [settings["block"], held_rule(layers, settings)];
    block = stub77_[0];rule = stub77_[1];
    stub78_ = [settings["context"], tokens_kept(layers, settings)];
    context = stub78_[0];tokens = stub78_[1];
    passed = false;
    stub79_seq = layers;
    if ((typeof stub79_seq === "object") && (!Array.isArray(stub79_seq))) { stub79_seq = Object.keys(stub79_seq);}
    for (stub80_itr = 0; stub80_itr < stub79_seq.length; stub80_itr += 1) {
        g = stub79_seq[stub80_itr];
        if (((g["window"] > 0) && (g["window"] < context))) {
            passed = true;
        }
    }
    if ((_pyfunc_op_equals(rule, "all") && _pyfunc_truthy(passed))) {
        return _pymeth_join.call("", ["if every layer holds ", tokens_words(in_blocks(context, block))]);
    }
    if ((_pyfunc_op_equals(rule, "vllm") && (layers.length > 1))) {
        size = fixed(group_size(layers), 0);
        return _pymeth_join.call("", ["in vLLM's groups of ", size, " layers, in whole blocks of ", tokens_words(block)]);
    }
    if (_pyfunc_truthy(passed)) {
        return _pymeth_join.call("", ["in blocks of ", tokens_words(block), ", within which a window may begin"]);
    }
    if (((tokens < context) && (((Math.max.apply(null, (function list_comprehension (iter0) {var res = [];var g, i0;if ((typeof iter0 === "object") && (!Array.isArray(iter0))) {iter0 = Object.keys(iter0);}for (i0=0; i0<iter0.length; i0++) {g = iter0[i0];{res.push(g["window"]);}}return res;}).call(this, layers))) > 0)))) {
        return _pymeth_join.call("", ["in whole blocks of ", tokens_words(block)]);
    }
    full = in_blocks(tokens, block);
    count = fixed(full / block, 0);
    return _pymeth_join.call("", ["in whole blocks, ", count, " \u00d7 ", fixed(block, 0), " = ", tokens_words(full)]);
};

share_line = function (layers, gpus, mine) {
    var dealt, first, heads, on_one;
    first = 0;
    while ((((layers[first]["vectors"]) < 1)) && ((first < (layers.length - 1)))) {
        first += 1;
    }
    if ((_pyfunc_op_equals((layers[first]["vectors"]), 1))) {
        return _pymeth_join.call("", ["the latent serves every head, so each GPU holds all of it: ", bytes_exact(mine)]);
    }
    heads = (layers[first]["vectors"]) / 2;
    on_one = _pymeth_join.call("", [fixed(whole(heads / gpus), 0), " on each"]);
    if ((gpus > heads)) {
        on_one = _pymeth_join.call("", [on_one, ", so that several GPUs hold the same"]);
    }
    dealt = _pymeth_join.call("", [fixed(heads, 0), " kv heads / ", fixed(gpus, 0), " GPUs: ", on_one]);
    return _pymeth_join.call("", [dealt, ", ", bytes_exact(mine), " per request"]);
};

layers_reserved = function (layers, reserve, block) {
    return layers_as_held(layers, reserve, 1, block, (function list_comprehension (iter0) {var res = [];var g, i0;if ((typeof iter0 === "object") && (!Array.isArray(iter0))) {iter0 = Object.keys(iter0);}for (i0=0; i0<iter0.length; i0++) {g = iter0[i0];{res.push(0);}}return res;}).call(this, layers));
};

layers_keeping_all = function (layers) {
    var g, kept, stub81_seq, stub82_itr;
    kept = layers_on_one(layers, 1);
    stub81_seq = kept;
    if ((typeof stub81_seq === "object") && (!Array.isArray(stub81_seq))) { stub81_seq = Object.keys(stub81_seq);}
    for (stub82_itr = 0; stub82_itr < stub81_seq.length; stub82_itr += 1) {
        g = stub81_seq[stub82_itr];
        g["window"] = 0;
    }
    return kept;
};

payload_only = function (codec) {
    return ({bits: codec["bits"], scale_bits: 0, group: codec["group"], residual: codec["residual"]});
};

weight_bytes_on_one = function (facts, weight_bits, gpus) {
    return (_pyfunc_op_mult(facts["parameters"], weight_bits) / 8) / gpus;
};

requests_that_fit = function (layers, codec, seq, block, budget) {
    return Math.floor(Math.max(0, budget)/reserved_bytes(layers, codec, seq, block));
};

roofline_scene = function (settings, tables) {
    var codec, facts, gpu, phase, requests, work;
    facts = tables["models"][settings["model"]];
    gpu = tables["gpus"][settings["gpu"]];
    codec = tables["codecs"][settings["kv"]];
    work = roofline_work(facts, gpu, codec, settings);
    requests = count_words(settings["batch"], "request", "requests");
    phase = (_pyfunc_op_equals(settings["phase"], "decode"))? ("Decode") : ("Prefill");
    return ({title: _pymeth_join.call("", ([phase, " of ", facts["title"], " on one ", gpu["title"], ": ", requests, " of ", tokens_words(settings["context"])])), summary: roofline_summary(facts, gpu, settings, work), formula: roofline_formula(facts, gpu, codec, settings, work), numbers: roofline_numbers(settings, work), panels: [roofline_plane(gpu, work), roofline_times(gpu, work)]});
};

roofline_work = function (facts, gpu, codec, settings) {
    var batch, compute, flops, fresh, held, kept, memory, moved, once, prefix, seq, stub83_, stub84_, w;
    stub83_ = [settings["batch"], settings["context"]];
    batch = stub83_[0];seq = stub83_[1];
    prefix = Math.floor(_pyfunc_op_mult(seq, settings["shared"])/100);
    fresh = (_pyfunc_op_equals(settings["phase"], "decode"))? (1) : (seq - prefix);
    w = pass_work(facts, codec, 16, batch, fresh, seq, prefix);
    flops = _pyfunc_op_add(w["linear_flops"], w["attention_flops"]);
    moved = _pyfunc_op_add(_pyfunc_op_add(w["weight_bytes"], w["kv_bytes"]), w["kv_written"]);
    once = 0.0;
    if ((fresh < seq)) {
        once = shared_saving(facts["layers"], codec, fresh, seq, prefix);
    }
    kept = stored_bytes(facts["layers"], codec, seq);
    held = _pyfunc_op_mult(batch, kept) - (_pyfunc_op_mult((batch - 1), shared_saving(facts["layers"], codec, 1, seq, prefix)));
    stub84_ = [flops / gpu["bf16"], moved / gpu["bandwidth"]];
    compute = stub84_[0];memory = stub84_[1];
    return ({fresh: fresh, prefix: prefix, linear_flops: w["linear_flops"], attention_flops: w["attention_flops"], flops: flops, weight_bytes: w["weight_bytes"], kv_bytes: w["kv_bytes"], kv_once: once, kv_written: w["kv_written"], bytes: moved, linear: w["linear_flops"] / w["weight_bytes"], attention: w["attention_flops"] / _pyfunc_op_add(w["kv_bytes"], w["kv_written"]), whole: flops / moved, ridge: gpu["bf16"] / gpu["bandwidth"], compute: compute, memory: memory, floor: seconds(flops, moved, gpu["bf16"], gpu["bandwidth"]), made: (_pyfunc_op_equals(settings["phase"], "decode"))? (batch) : (_pyfunc_op_mult(batch, fresh)), needed: _pyfunc_op_add(_pyfunc_op_mult(facts["parameters"], 2), held)});
};

roofline_summary = function (facts, gpu, settings, work) {
    var bound, computed, each, idle, kept, kinds, moved, rate, sentences, speed, what;
    what = (_pyfunc_op_equals(settings["phase"], "decode"))? ("One decode step") : ("The prefill");
    rate = scaled_words(gpu["bf16"], "FLOP/s");
    kinds = _pymeth_join.call("", ([bytes_words(work["weight_bytes"], 1000), " of weights and"]));
    kept = bytes_words(_pyfunc_op_add(work["kv_bytes"], work["kv_written"]), 1000);
    kinds = _pymeth_join.call("", [kinds, " ", kept, " of keys and values"]);
    moved = _pymeth_join.call("", ([what, " moves ", bytes_words(work["bytes"], 1000), ", of them ", kinds, ": ", seconds_words(work["memory"]), " at ", bandwidth_words(gpu), "."]));
    computed = _pymeth_join.call("", (["Its ", scaled_words(work["flops"], "FLOP"), " take ", seconds_words(work["compute"]), " at ", rate]));
    if ((work["memory"] >= work["compute"])) {
        idle = percent_words(1 - (work["compute"] / work["memory"]));
        bound = _pymeth_join.call("", ["so the step waits for memory, and the multipliers are idle ", idle, " of the time."]);
    } else {
        idle = percent_words(1 - (work["memory"] / work["compute"]));
        bound = _pymeth_join.call("", ["so the step waits for arithmetic, and the memory is idle ", idle, " of the time."]);
    }
    sentences = [moved, _pymeth_join.call("", [computed, ", ", bound])];
    speed = rate_words(work["made"] / work["floor"]);
    if (_pyfunc_op_equals(settings["phase"], "prefill")) {
        _pymeth_append.call(sentences, _pymeth_join.call("", ["That allows ", speed, " of prompt at most."]));
    } else if (_pyfunc_op_equals(settings["batch"], 1)) {
        _pymeth_append.call(sentences, _pymeth_join.call("", ["That allows ", speed, " at most."]));
    } else {
        each = rate_words(1 / work["floor"]);
        _pymeth_append.call(sentences, _pymeth_join.call("", ["That allows ", speed, " at most, ", each, " per request."]));
    }
    if ((work["needed"] > gpu["usable"])) {
        _pymeth_append.call(sentences, (_pymeth_join.call("", (["But it needs ", bytes_words(work["needed"], 1000), " of memory and the GPU has ", bytes_words(gpu["usable"], 1000), ": it does not fit."]))));
    }
    if ((settings["context"] > facts["max_context"])) {
        _pymeth_append.call(sentences, (_pymeth_join.call("", (["The model reads at most ", tokens_words(facts["max_context"]), "."]))));
    }
    if (_pyfunc_truthy(unconfirmed(gpu, "bf16"))) {
        _pymeth_append.call(sentences, "The matrix rate of this GPU is an unconfirmed figure.");
    }
    return _pymeth_join.call(" ", sentences);
};

rate_words = function (tokens_a_second) {
    return _pymeth_join.call("", [number_words(tokens_a_second), " tokens/s"]);
};

bandwidth_words = function (gpu) {
    return _pymeth_join.call("", ([bytes_words(gpu["bandwidth"], 1000), "/s"]));
};

roofline_numbers = function (settings, work) {
    var bound, decode, numbers, speed;
    decode = _pyfunc_op_equals(settings["phase"], "decode");
    speed = rate_words(work["made"] / work["floor"]);
    numbers = [({label: "Attention", text: intensity_words(work["attention"])}), ({label: "Linear layers", text: intensity_words(work["linear"])}), ({label: (_pyfunc_truthy(decode))? ("Whole step") : ("Whole prefill"), text: intensity_words(work["whole"])}), ({label: "Ridge of the GPU", text: intensity_words(work["ridge"])}), ({label: "Least time", text: seconds_words(work["floor"])}), ({label: (_pyfunc_truthy(decode))? ("At most, all requests") : ("At most"), text: speed})];
    if (_pyfunc_truthy(decode)) {
        _pymeth_append.call(numbers, (({label: "At most, each request", text: rate_words(1 / work["floor"])})));
    }
    bound = ((work["memory"] >= work["compute"]))? ("memory") : ("arithmetic");
    _pymeth_append.call(numbers, ({label: "Bound by", text: bound}));
    return numbers;
};

TERA = 1000000000000;
roofline_plane = function (gpu, work) {
    var label, lines, low, names, parts, peak, points, ridge, roles, roof, speed, stub85_, stub86_, stub86_i, stub86_i0, stub86_iter0, x, y;
    stub85_ = [gpu["bf16"], gpu["bandwidth"]];
    peak = stub85_[0];speed = stub85_[1];
    parts = [work["attention"], work["linear"], work["whole"]];
    label = "operations per byte moved (FLOP/byte)";
    x = axis_decades(label, Math.min(0.5, Math.min.apply(null, parts)), Math.max(5000, (_pyfunc_op_mult(3, Math.max.apply(null, parts)))), 1);
    low = attainable(x["min"], peak, speed);
    y = axis_decades("TFLOP/s", low, _pyfunc_op_mult(peak, 4), TERA);
    roof = [[x["min"], low], [work["ridge"], peak], [x["max"], peak]];
    ridge = [[work["ridge"], y["min"]], [work["ridge"], peak]];
    names = ["attention", "linear layers", "whole"];
    roles = ["cached", "weights", "ink"];
    stub86_ = [];stub86_iter0 = _pyfunc_range(0, 3, 1);if ((typeof stub86_iter0 === "object") && (!Array.isArray(stub86_iter0))) {stub86_iter0 = Object.keys(stub86_iter0);}for (stub86_i0=0; stub86_i0<stub86_iter0.length; stub86_i0++) {stub86_i = stub86_iter0[stub86_i0];{stub86_.push([names[stub86_i], roles[stub86_i], parts[stub86_i], attainable(parts[stub86_i], peak, speed)]);}}
    points = stub86_;
    lines = [["roof", "muted", roof, false]];
    _pymeth_append.call(lines, ([_pymeth_join.call("", (["ridge ", fixed(work["ridge"], 0)])), "muted", ridge, true]));
    return curves_panel("On the roofline", x, y, lines, points);
};

time_unit = function (longest_time) {
    if ((longest_time < 0.001)) {
        return ({name: "\u00b5s", size: 1e-06});
    }
    if ((longest_time < 1)) {
        return ({name: "ms", size: 0.001});
    }
    return ({name: "s", size: 1});
};

roofline_times = function (gpu, work) {
    var a_byte, a_flop, bars, compute, floor, mark, memory, unit, unshared;
    unit = time_unit(work["floor"]);
    a_byte = (1 / gpu["bandwidth"]) / unit["size"];
    a_flop = (1 / gpu["bf16"]) / unit["size"];
    unshared = work["kv_bytes"] - work["kv_once"];
    memory = [["weights", _pyfunc_op_mult(work["weight_bytes"], a_byte), "weights"]];
    _pymeth_append.call(memory, ["keys and values", _pyfunc_op_mult(unshared, a_byte), "cached"]);
    if ((work["kv_once"] > 0)) {
        _pymeth_append.call(memory, (["shared prefix, read once", _pyfunc_op_mult(work["kv_once"], a_byte), "shared"]));
    }
    _pymeth_append.call(memory, (["new keys and values, written", _pyfunc_op_mult(work["kv_written"], a_byte), "key"]));
    compute = [["weights", _pyfunc_op_mult(work["linear_flops"], a_flop), "weights"], ["keys and values", _pyfunc_op_mult(work["attention_flops"], a_flop), "cached"]];
    floor = work["floor"] / unit["size"];
    bars = [["memory", memory], ["arithmetic", compute]];
    mark = [_pymeth_join.call("", (["least time: ", seconds_words(work["floor"])])), floor];
    return bars_panel("Time to move, time to compute", unit["name"], _pyfunc_op_mult(floor, 1.04), bars, [mark]);
};

intensity_words = function (x) {
    return _pymeth_join.call("", [number_words(x), " FLOP/byte"]);
};

linear_lines = function (facts, settings, work) {
    var active, batch, each, head, line, lines, nbytes, read, rows, stub87_, tokens, used;
    batch = settings["batch"];
    tokens = _pyfunc_op_mult(batch, work["fresh"]);
    active = _pyfunc_op_add(facts["product_weights"], _pyfunc_op_mult(facts["experts_per_token"], facts["expert_weights"]));
    each = _pymeth_join.call("", [tokens_words(tokens), " \u00d7 ", large_words(active), " weights"]);
    rows = count_words(batch, "row", "rows");
    head = _pymeth_join.call("", ([rows, " \u00d7 ", large_words(facts["head_weights"]), " of the output"]));
    stub87_ = [large_words(work["weight_bytes"] / 2), bytes_words(work["weight_bytes"], 1000)];
    read = stub87_[0];nbytes = stub87_[1];
    lines = [_pymeth_join.call("", (["linear layers: 2 \u00d7 (", each, " + ", head, ") = ", scaled_words(work["linear_flops"], "FLOP")]))];
    line = _pymeth_join.call("", ["weights read: ", read, " \u00d7 2 bytes = ", nbytes]);
    if ((facts["experts"] > 0)) {
        used = experts_read(facts["experts"], facts["experts_per_token"], tokens);
        line = _pymeth_join.call("", ([line, " (on average ", number_words(used), " of ", fixed(facts["experts"], 0), " experts used)"]));
    }
    _pymeth_append.call(lines, line);
    return lines;
};

attention_line = function (g, settings, work) {
    var dims, each, flops, fresh, heads, layers, name, seen, seq, stub88_, total;
    stub88_ = [work["fresh"], settings["context"]];
    fresh = stub88_[0];seq = stub88_[1];
    dims = [g["qk_dim"], g["v_dim"]];
    if ((fresh >= seq)) {
        dims = [g["full_qk_dim"], g["full_v_dim"]];
    }
    seen = pairs(fresh, seq, g["window"]);
    each = _pymeth_join.call("", [tokens_words(seen), " seen"]);
    if ((fresh > 1)) {
        each = _pymeth_join.call("", [large_words(seen), " pairs of query and key"]);
    }
    total = _pyfunc_op_mult((_pyfunc_op_mult((_pyfunc_op_mult((_pyfunc_op_mult(_pyfunc_op_mult(settings["batch"], g["count"]), 2)), g["num_qo_heads"])), _pyfunc_op_add(dims[0], dims[1]))), seen);
    name = (_pyfunc_op_equals(g["window"], 0))? ("attention") : (_pymeth_join.call("", (["attention, window ", fixed(g["window"], 0)])));
    layers = _pymeth_join.call("", ([fixed(settings["batch"], 0), " \u00d7 ", fixed(g["count"], 0), " layers"]));
    heads = _pymeth_join.call("", ([fixed(g["num_qo_heads"], 0), " heads \u00d7 (", fixed(dims[0], 0), " + ", fixed(dims[1], 0), ")"]));
    flops = scaled_words(total, "FLOP");
    return _pymeth_join.call("", [name, ": 2 \u00d7 ", layers, " \u00d7 ", heads, " \u00d7 ", each, " = ", flops]);
};

roofline_formula = function (facts, gpu, codec, settings, work) {
    var batch, each, g, kv, lines, moved, rate, speed, stub89_seq, stub90_itr, stub91_, stub92_, stub93_, total, unshared;
    lines = linear_lines(facts, settings, work);
    stub89_seq = facts["layers"];
    if ((typeof stub89_seq === "object") && (!Array.isArray(stub89_seq))) { stub89_seq = Object.keys(stub89_seq);}
    for (stub90_itr = 0; stub90_itr < stub89_seq.length; stub90_itr += 1) {
        g = stub89_seq[stub90_itr];
        _pymeth_append.call(lines, attention_line(g, settings, work));
        if ((_pyfunc_op_equals(g["vectors"], 1) && (work["fresh"] > 1) && (work["fresh"] < settings["context"]))) {
            _pymeth_append.call(lines, "(a prefix in the cache is attended to as latents, not expanded)");
        }
    }
    stub91_ = [settings["batch"], bytes_words(work["kv_bytes"], 1000)];
    batch = stub91_[0];kv = stub91_[1];
    if ((work["fresh"] >= settings["context"])) {
        _pymeth_append.call(lines, _pymeth_join.call("", ["keys and values, just computed, read in 16 bits: ", kv]));
    } else if ((work["kv_once"] > 0)) {
        unshared = (work["kv_bytes"] - work["kv_once"]) / batch;
        _pymeth_append.call(lines, (_pymeth_join.call("", (["keys and values read in ", codec["name"], ": shared prefix of ", tokens_words(work["prefix"]), " once, ", bytes_words(work["kv_once"], 1000), ", + ", fixed(batch, 0), " \u00d7 ", bytes_words(unshared, 1000), " = ", kv]))));
    } else {
        each = bytes_words(work["kv_bytes"] / batch, 1000);
        _pymeth_append.call(lines, (_pymeth_join.call("", (["keys and values read in ", codec["name"], ": ", fixed(batch, 0), " \u00d7 ", each, " = ", kv]))));
    }
    _pymeth_append.call(lines, (_pymeth_join.call("", (["new keys and values written: ", bytes_words(work["kv_written"], 1000)]))));
    stub92_ = [scaled_words(gpu["bf16"], "FLOP/s"), bytes_words(gpu["bandwidth"], 1000)];
    rate = stub92_[0];speed = stub92_[1];
    stub93_ = [scaled_words(work["flops"], "FLOP"), bytes_words(work["bytes"], 1000)];
    total = stub93_[0];moved = stub93_[1];
    _pymeth_append.call(lines, (_pymeth_join.call("", (["whole: ", total, " / ", moved, " = ", intensity_words(work["whole"])]))));
    _pymeth_append.call(lines, (_pymeth_join.call("", (["ridge: ", rate, " / ", speed, "/s = ", intensity_words(work["ridge"])]))));
    _pymeth_append.call(lines, (_pymeth_join.call("", (["time: the longer of ", total, " / ", rate, " = ", seconds_words(work["compute"]), " and ", moved, " / ", speed, "/s = ", seconds_words(work["memory"])]))));
    return lines;
};

attainable = function (intensity, flops_per_s, bytes_per_s) {
    return Math.min(flops_per_s, _pyfunc_op_mult(intensity, bytes_per_s));
};

SAMPLES = 48;
growth_scene = function (settings, tables) {
    var again, facts, fast, fresh, held, once, prompt, slow, stub94_, stub95_, work;
    facts = tables["models"][settings["model"]];
    stub94_ = [settings["prompt"], settings["new"]];
    prompt = stub94_[0];fresh = stub94_[1];
    stub95_ = [uncached_flops(facts, prompt, fresh), cached_flops(facts, prompt, fresh)];
    slow = stub95_[0];fast = stub95_[1];
    again = _pyfunc_op_add(slow["linear"], slow["attention"]);
    once = _pyfunc_op_add(fast["linear"], fast["attention"]);
    held = stored_bytes(facts["layers"], tables["codecs"]["bfloat16"], fast["tokens"]);
    work = ({slow_tokens: slow["tokens"], fast_tokens: fast["tokens"], again: again, once: once, ratio: again / once, last_slow: step_flops(facts, fast["tokens"], fast["tokens"]), last_fast: step_flops(facts, 1, fast["tokens"]), held: held});
    return ({title: _pymeth_join.call("", ([facts["title"], ": a prompt of ", tokens_words(prompt), " and ", fixed(fresh, 0), " new"])), summary: growth_summary(facts, settings, work), formula: growth_formula(facts, settings, work), numbers: [({label: "Without a cache", text: scaled_words(again, "FLOP")}), ({label: "With a cache", text: scaled_words(once, "FLOP")}), ({label: "Ratio", text: times_words(work["ratio"])}), ({label: "Ratio of the last step", text: times_words(work["last_slow"] / work["last_fast"])}), ({label: "Kept for it", text: bytes_words(held, 1024)})], panels: [growth_curves(facts, settings, work), growth_bars(work)]});
};

step_flops = function (facts, fresh, seq) {
    return _pyfunc_op_add(linear_flops(facts, fresh, fresh), attention_flops(facts["layers"], fresh, seq));
};

growth_summary = function (facts, settings, work) {
    var again, held, once, sentences, stub96_;
    stub96_ = [scaled_words(work["again"], "FLOP"), scaled_words(work["once"], "FLOP")];
    again = stub96_[0];once = stub96_[1];
    held = bytes_words(work["held"], 1024);
    sentences = [_pymeth_join.call("", (["The ", tokens_words(settings["new"]), " take ", again, " if every step computes all tokens again, ", times_words(work["ratio"]), " the ", once, " that they take with a cache."])), _pymeth_join.call("", ["For that, ", held, " of keys and values are kept (bfloat16)."])];
    if ((work["fast_tokens"] > facts["max_context"])) {
        _pymeth_append.call(sentences, (_pymeth_join.call("", (["The model reads at most ", tokens_words(facts["max_context"]), "."]))));
    }
    return _pymeth_join.call(" ", sentences);
};

growth_formula = function (facts, settings, work) {
    var each, fresh, prompt, stub97_, stub98_, stub98_i, stub98_i0, stub98_iter0, terms;
    stub97_ = [settings["prompt"], settings["new"]];
    prompt = stub97_[0];fresh = stub97_[1];
    stub98_ = [];stub98_iter0 = _pyfunc_range(0, Math.min(fresh, 3), 1);if ((typeof stub98_iter0 === "object") && (!Array.isArray(stub98_iter0))) {stub98_iter0 = Object.keys(stub98_iter0);}for (stub98_i0=0; stub98_i0<stub98_iter0.length; stub98_i0++) {stub98_i = stub98_iter0[stub98_i0];{stub98_.push(fixed(_pyfunc_op_add(prompt, stub98_i), 0));}}
    terms = stub98_;
    if (_pyfunc_op_equals(fresh, 4)) {
        _pymeth_append.call(terms, fixed(prompt + 3, 0));
    } else if ((fresh > 4)) {
        _pymeth_append.call(terms, "...");
        _pymeth_append.call(terms, (fixed(_pyfunc_op_add(prompt, fresh) - 1, 0)));
    }
    each = linear_flops(facts, 1, 1);
    return [_pymeth_join.call("", (["without a cache: ", _pymeth_join.call(" + ", terms), " = ", fixed(work["slow_tokens"], 0), " rows"])), _pymeth_join.call("", (["with a cache: ", fixed(prompt, 0), " + ", fixed(fresh - 1, 0), " = ", fixed(work["fast_tokens"], 0), " rows"])), _pymeth_join.call("", ["a row: 2 \u00d7 ", large_words(each / 2), " weights = ", scaled_words(each, "FLOP"), ", and attention to the rows before"]), _pymeth_join.call("", ([scaled_words(work["again"], "FLOP"), " / ", scaled_words(work["once"], "FLOP"), " = ", number_words(work["ratio"])]))];
};

flops_unit = function (most) {
    var name, stub100_itr, stub99_seq, unit;
    unit = ({name: "MFLOP", size: 1000000.0});
    stub99_seq = ["GFLOP", "TFLOP", "PFLOP", "EFLOP"];
    if ((typeof stub99_seq === "object") && (!Array.isArray(stub99_seq))) { stub99_seq = Object.keys(stub99_seq);}
    for (stub100_itr = 0; stub100_itr < stub99_seq.length; stub100_itr += 1) {
        name = stub99_seq[stub100_itr];
        if ((most >= _pyfunc_op_mult(unit["size"], 1000))) {
            unit = ({name: name, size: _pyfunc_op_mult(unit["size"], 1000)});
        }
    }
    return unit;
};

growth_curves = function (facts, settings, work) {
    var at, fast, fresh, i, j, lines, points, prompt, seq, slow, steps, stub101_, stub102_seq, stub103_itr, stub104_, top, unit, x, y;
    stub101_ = [settings["prompt"], settings["new"]];
    prompt = stub101_[0];fresh = stub101_[1];
    steps = [1];
    for (j = 0; j < SAMPLES; j += 1) {
        at = 2 + (Math.floor((_pyfunc_op_mult(j, (fresh - 2)))/(SAMPLES - 1)));
        if (((at > steps[steps.length - 1]) && (at <= fresh))) {
            _pymeth_append.call(steps, at);
        }
    }
    slow = [];
    fast = [];
    stub102_seq = steps;
    if ((typeof stub102_seq === "object") && (!Array.isArray(stub102_seq))) { stub102_seq = Object.keys(stub102_seq);}
    for (stub103_itr = 0; stub103_itr < stub102_seq.length; stub103_itr += 1) {
        i = stub102_seq[stub103_itr];
        seq = _pyfunc_op_add(prompt, i) - 1;
        _pymeth_append.call(slow, [i, step_flops(facts, seq, seq)]);
        _pymeth_append.call(fast, [i, step_flops(facts, (_pyfunc_op_equals(i, 1))? (seq) : (1), seq)]);
    }
    unit = flops_unit(work["last_slow"]);
    stub104_ = [axis_counts("new token", _pyfunc_op_mult(fresh, 1.02)), _pyfunc_op_mult(work["last_slow"], 1.12)];
    x = stub104_[0];top = stub104_[1];
    lines = [["recomputed", "recomputed", slow, false], ["with a cache", "key", fast, false]];
    points = [[scaled_words(work["last_slow"], "FLOP"), "recomputed", fresh, work["last_slow"]], [scaled_words(work["last_fast"], "FLOP"), "key", fresh, work["last_fast"]]];
    y = axis_linear(unit["name"], top, unit["size"]);
    return curves_panel("Operations of each step", x, y, lines, points);
};

growth_bars = function (work) {
    var again, bars, needed, once, repeated, stub105_, unit;
    unit = flops_unit(work["again"]);
    stub105_ = [work["once"] / unit["size"], work["again"] / unit["size"]];
    once = stub105_[0];again = stub105_[1];
    needed = ["computed once", once, "key"];
    repeated = ["computed again", again - once, "recomputed"];
    bars = [["without a cache", [needed, repeated]], ["with a cache", [needed]]];
    return bars_panel("Operations in all", unit["name"], _pyfunc_op_mult(again, 1.04), bars);
};

COLUMNS = 32;
padding_scene = function (settings, tables) {
    var empty, held, lengths, longest, n, of_cache, of_rectangle, padding, requests, reserve, shortest, slots, stub106_, stub107_, stub108_, tokens, wide;
    lengths = unequal_lengths(settings["requests"], settings["longest"], settings["shortest"]);
    stub106_ = [settings["longest"], Math.max(settings["reserve"], settings["longest"])];
    longest = stub106_[0];reserve = stub106_[1];
    stub107_ = [empty_slots(lengths, longest), empty_slots(lengths, reserve)];
    padding = stub107_[0];empty = stub107_[1];
    tokens = _pyfunc_op_mult(lengths.length, longest) - padding;
    slots = ({tokens: tokens, longest: longest, reserve: reserve, padding: padding, empty: empty});
    of_rectangle = percent_words(padding / _pyfunc_op_add(padding, tokens));
    of_cache = percent_words(empty / _pyfunc_op_add(empty, tokens));
    requests = count_words(settings["requests"], "request", "requests");
    shortest = ((_pyfunc_op_equals(Math.min.apply(null, lengths), longest)))? ("") : (_pymeth_join.call("", [fixed(Math.min.apply(null, lengths), 0), " to "]));
    stub108_ = [fixed(settings["requests"], 0), fixed(tokens, 0), fixed(reserve, 0)];
    n = stub108_[0];held = stub108_[1];wide = stub108_[2];
    return ({title: _pymeth_join.call("", [requests, " of ", shortest, tokens_words(longest), ", ", wide, " reserved for each"]), summary: _pymeth_join.call("", ["Together the ", n, " requests have ", tokens_words(tokens), ". Padded to the longest, ", of_rectangle, " of the rectangle is padding; with ", tokens_words(reserve), " reserved for each, ", of_cache, " of the cache is empty. Packed one after the other, they need no padding."]), formula: [_pymeth_join.call("", ["padding: ", n, " \u00d7 ", fixed(longest, 0), " \u2212 ", held, " = ", tokens_words(padding), ", ", of_rectangle, " of the rectangle"]), _pymeth_join.call("", ["reserved and empty: ", n, " \u00d7 ", wide, " \u2212 ", held, " = ", tokens_words(empty), ", ", of_cache, " of the cache"])], numbers: [({label: "Tokens", text: held}), ({label: "Padding in the rectangle", text: of_rectangle}), ({label: "Empty in the reserved cache", text: of_cache}), ({label: "Padding when packed", text: "0 %"})], panels: [padding_cells(lengths, slots), padding_bars(slots)]});
};

unequal_lengths = function (requests, longest, shortest) {
    var least, steps;
    least = Math.max(1, (Math.floor(_pyfunc_op_mult(longest, shortest)/100)));
    steps = Math.max(1, (requests - 1));
    return (function list_comprehension (iter0) {var res = [];var i, i0;if ((typeof iter0 === "object") && (!Array.isArray(iter0))) {iter0 = Object.keys(iter0);}for (i0=0; i0<iter0.length; i0++) {i = iter0[i0];{res.push(longest - (Math.floor((_pyfunc_op_mult((longest - least), i))/steps)));}}return res;}).call(this, _pyfunc_range(0, requests, 1));
};

padding_cells = function (lengths, slots) {
    var a_cell, cells, i, label, meanings, n, role, roles, rows, stub109_seq, stub110_itr;
    a_cell = whole(slots["reserve"] / COLUMNS);
    rows = [];
    stub109_seq = lengths;
    if ((typeof stub109_seq === "object") && (!Array.isArray(stub109_seq))) { stub109_seq = Object.keys(stub109_seq);}
    for (stub110_itr = 0; stub110_itr < stub109_seq.length; stub110_itr += 1) {
        n = stub109_seq[stub110_itr];
        cells = [];
        for (i = 0; i < _pyfunc_int(whole(slots["reserve"] / a_cell)); i += 1) {
            role = "free";
            if ((_pyfunc_op_mult(i, a_cell) < n)) {
                role = "cached";
            } else if ((_pyfunc_op_mult(i, a_cell) < slots["longest"])) {
                role = "recomputed";
            }
            _pymeth_append.call(cells, role);
        }
        _pymeth_append.call(rows, [fixed(n, 0), cells]);
    }
    label = _pymeth_join.call("", ["One row per request, one square for ", tokens_words(a_cell)]);
    meanings = ["tokens", "padding to the longest", "reserved, never used"];
    roles = ["cached", "recomputed", "free"];
    return cells_panel(label, rows, (function list_comprehension (iter0) {var res = [];var i, i0;if ((typeof iter0 === "object") && (!Array.isArray(iter0))) {iter0 = Object.keys(iter0);}for (i0=0; i0<iter0.length; i0++) {i = iter0[i0];{res.push([roles[i], meanings[i]]);}}return res;}).call(this, _pyfunc_range(0, 3, 1)));
};

padding_bars = function (slots) {
    var bars, most, padding, rest, tokens;
    tokens = ["tokens", slots["tokens"], "cached"];
    padding = ["padding to the longest", slots["padding"], "recomputed"];
    rest = ["reserved, never used", slots["empty"] - slots["padding"], "free"];
    most = _pyfunc_op_mult(_pyfunc_op_add(slots["tokens"], slots["empty"]), 1.04);
    bars = [["packed", [tokens]], ["padded", [tokens, padding]]];
    _pymeth_append.call(bars, (["reserved", [tokens, padding, rest]]));
    return bars_panel("Slots that the same tokens take", "slots", most, bars);
};

empty_slots = function (lengths, width) {
    var n, stub111_seq, stub112_itr, total;
    total = 0.0;
    stub111_seq = lengths;
    if ((typeof stub111_seq === "object") && (!Array.isArray(stub111_seq))) { stub111_seq = Object.keys(stub111_seq);}
    for (stub112_itr = 0; stub112_itr < stub111_seq.length; stub112_itr += 1) {
        n = stub111_seq[stub112_itr];
        total = _pyfunc_op_add(total, width - n);
    }
    return total;
};

EULER = 2.718281828459045;
SHOWN = 12;
sampling_scene = function (settings, tables) {
    var after, before, kept, mass, p, row, stub113_seq, stub114_itr, stub115_, stub115_i0, stub115_iter0, words;
    row = tables["logit_rows"][settings["row"]];
    before = softmax_of(row["logits"], settings["temperature"]);
    kept = kept_tokens(before, settings["top_k"], settings["top_p"] / 100);
    mass = 0.0;
    stub113_seq = before.slice(0,kept);
    if ((typeof stub113_seq === "object") && (!Array.isArray(stub113_seq))) { stub113_seq = Object.keys(stub113_seq);}
    for (stub114_itr = 0; stub114_itr < stub113_seq.length; stub114_itr += 1) {
        p = stub113_seq[stub114_itr];
        mass = _pyfunc_op_add(mass, p);
    }
    stub115_ = [];stub115_iter0 = before.slice(0,kept);if ((typeof stub115_iter0 === "object") && (!Array.isArray(stub115_iter0))) {stub115_iter0 = Object.keys(stub115_iter0);}for (stub115_i0=0; stub115_i0<stub115_iter0.length; stub115_i0++) {p = stub115_iter0[stub115_i0];{stub115_.push(p / mass);}}
    after = stub115_;
    words = count_words(kept, "token", "tokens");
    return ({title: _pymeth_join.call("", (["After ", row["title"], ": ", words, " may be drawn"])), summary: sampling_summary(row, settings, before, kept, mass), formula: sampling_formula(row, settings, kept, mass), numbers: [({label: "Tokens remaining", text: fixed(kept, 0)}), ({label: "Their share of the probability", text: percent_words(mass)}), ({label: "Likeliest token, after the cuts", text: percent_words(after[0])}), ({label: "Entropy of a draw", text: _pymeth_join.call("", [number_words(entropy_of(after)), " bits"])})], panels: [sampling_bars(row, before, kept)]});
};

softmax_of = function (logits, temperature) {
    var stub116_, stub116_i0, stub116_iter0, stub116_x, stub117_seq, stub118_itr, total, w, weights;
    stub116_ = [];stub116_iter0 = logits;if ((typeof stub116_iter0 === "object") && (!Array.isArray(stub116_iter0))) {stub116_iter0 = Object.keys(stub116_iter0);}for (stub116_i0=0; stub116_i0<stub116_iter0.length; stub116_i0++) {stub116_x = stub116_iter0[stub116_i0];{stub116_.push(Math.pow(EULER, ((stub116_x - logits[0]) / temperature)));}}
    weights = stub116_;
    total = 0.0;
    stub117_seq = weights;
    if ((typeof stub117_seq === "object") && (!Array.isArray(stub117_seq))) { stub117_seq = Object.keys(stub117_seq);}
    for (stub118_itr = 0; stub118_itr < stub117_seq.length; stub118_itr += 1) {
        w = stub117_seq[stub118_itr];
        total = _pyfunc_op_add(total, w);
    }
    return (function list_comprehension (iter0) {var res = [];var w, i0;if ((typeof iter0 === "object") && (!Array.isArray(iter0))) {iter0 = Object.keys(iter0);}for (i0=0; i0<iter0.length; i0++) {w = iter0[i0];{res.push(w / total);}}return res;}).call(this, weights);
};

kept_tokens = function (p, top_k, top_p) {
    var before, kept, most, stub119_seq, stub120_itr, stub121_, total, x;
    most = Math.min(top_k, p.length);
    if (_pyfunc_op_equals(top_p, 1)) {
        return most;
    }
    total = 0.0;
    stub119_seq = p.slice(0,most);
    if ((typeof stub119_seq === "object") && (!Array.isArray(stub119_seq))) { stub119_seq = Object.keys(stub119_seq);}
    for (stub120_itr = 0; stub120_itr < stub119_seq.length; stub120_itr += 1) {
        x = stub119_seq[stub120_itr];
        total = _pyfunc_op_add(total, x);
    }
    stub121_ = [0.0, 0];
    before = stub121_[0];kept = stub121_[1];
    while ((kept < most) && ((_pyfunc_op_equals(kept, 0) || ((before / total) < top_p)))) {
        before = _pyfunc_op_add(before, p[kept]);
        kept += 1;
    }
    return kept;
};

entropy_of = function (p) {
    var bits, stub122_seq, stub123_itr, x;
    bits = 0.0;
    stub122_seq = p;
    if ((typeof stub122_seq === "object") && (!Array.isArray(stub122_seq))) { stub122_seq = Object.keys(stub122_seq);}
    for (stub123_itr = 0; stub123_itr < stub122_seq.length; stub123_itr += 1) {
        x = stub122_seq[stub123_itr];
        if ((x > 0)) {
            bits = _pyfunc_op_add(bits, (_pyfunc_op_mult(x, log10(1 / x))) / log10(2));
        }
    }
    return bits;
};

sampling_summary = function (row, settings, before, kept, mass) {
    var first;
    first = row["tokens"][0];
    return _pymeth_join.call("", (["At temperature ", number_words(settings["temperature"]), " the likeliest token after ", row["title"], " is \u201c", first, "\u201d, with ", percent_words(before[0]), " before the cuts. Of ", fixed(before.length, 0), " tokens, ", fixed(kept, 0), " may be drawn. The cuts leave ", percent_words(mass), " of the probability, which is scaled up to 100 %."]));
};

sampling_formula = function (row, settings, kept, mass) {
    var gap, ratio, temperature;
    gap = (row["logits"][0]) - (row["logits"][1]);
    temperature = number_words(settings["temperature"]);
    ratio = Math.pow(EULER, (gap / settings["temperature"]));
    return [_pymeth_join.call("", ([row["tokens"][0], " against ", row["tokens"][1], ": exp(", number_words(gap), " / ", temperature, ") = ", number_words(ratio), " times as likely"])), _pymeth_join.call("", [count_words(kept, "token", "tokens"), " with ", percent_words(mass), ", divided by that share"])];
};

sampling_bars = function (row, before, kept) {
    var bars, i, label, part, step, stub124_seq, stub125_itr, top;
    bars = [];
    for (i = 0; i < Math.min(SHOWN, before.length); i += 1) {
        part = ["cut off", _pyfunc_op_mult(100, before[i]), "free"];
        if ((i < kept)) {
            part = ["may be drawn", _pyfunc_op_mult(100, before[i]), "muted"];
        }
        _pymeth_append.call(bars, ([row["tokens"][i], [part]]));
    }
    top = 10.0;
    stub124_seq = [20.0, 50.0, 100.0];
    if ((typeof stub124_seq === "object") && (!Array.isArray(stub124_seq))) { stub124_seq = Object.keys(stub124_seq);}
    for (stub125_itr = 0; stub125_itr < stub124_seq.length; stub125_itr += 1) {
        step = stub124_seq[stub125_itr];
        if ((_pyfunc_op_mult(100, before[0]) > top)) {
            top = step;
        }
    }
    label = _pymeth_join.call("", ["The ", fixed(SHOWN, 0), " likeliest tokens: probability before the cuts"]);
    return bars_panel(label, "%", _pyfunc_op_mult(top, 1.04), bars);
};

MOST_GUESSES = 16;
speculation_scene = function (settings, tables) {
    var gpu, guesses, requests, work;
    gpu = tables["gpus"][settings["gpu"]];
    work = speculation_work(gpu, settings);
    guesses = count_words(settings["gamma"], "guess", "guesses");
    requests = count_words(settings["batch"], "request", "requests");
    return ({title: _pymeth_join.call("", ([guesses, " per step for ", requests, " on one ", gpu["title"], ": ", speed_words(work["gain"]), " the speed"])), summary: speculation_summary(gpu, settings, work), formula: speculation_formula(settings, work), numbers: speculation_numbers(work), panels: [speculation_curves(settings, work), speculation_bars(settings, work)]});
};

speculation_work = function (gpu, settings) {
    var alone, batch, best, check, cost, gains, gamma, least, most, n, plain, ridge, rounded, share, stub126_, stub127_, stub128_;
    stub126_ = [settings["acceptance"], settings["cost"]];
    share = stub126_[0];cost = stub126_[1];
    stub127_ = [settings["gamma"], settings["batch"]];
    gamma = stub127_[0];batch = stub127_[1];
    ridge = gpu["bf16"] / gpu["bandwidth"];
    gains = [];
    alone = [];
    best = 0;
    for (n = 0; n < MOST_GUESSES + 1; n += 1) {
        _pymeth_append.call(gains, guessing_gain(share, n, cost, batch, ridge));
        _pymeth_append.call(alone, guessing_gain(share, n, cost, 1, ridge));
        if ((gains[n] > gains[best])) {
            best = n;
        }
    }
    stub128_ = [speed_words(gains[best]), best, best];
    rounded = stub128_[0];least = stub128_[1];most = stub128_[2];
    while ((least > 1) && ((_pyfunc_op_equals(rounded, speed_words(gains[least - 1]))))) {
        least = least - 1;
    }
    while ((best > 0) && (most < MOST_GUESSES) && ((_pyfunc_op_equals(rounded, speed_words(gains[most + 1]))))) {
        most = most + 1;
    }
    plain = batched_time(batch, ridge);
    check = batched_time(_pyfunc_op_mult(batch, (gamma + 1)), ridge);
    return ({ridge: ridge, gains: gains, alone: alone, best: best, least: least, most: most, gain: gains[gamma], made: guessed_tokens(share, gamma), fed: _pyfunc_op_mult(batch, (gamma + 1)), guessing: _pyfunc_op_mult(gamma, cost), reading: 1 / plain, check: check / plain, whole: _pyfunc_op_add(_pyfunc_op_mult(gamma, cost), (check / plain)), beyond: 1 - (1 / check)});
};

speculation_summary = function (gpu, settings, work) {
    var fed, guesses, ridge, sentences, slower;
    guesses = tokens_words(settings["gamma"]);
    sentences = [_pymeth_join.call("", (["At batch ", settings["batch"], ", guessing ", guesses, " per step ", verdict_words(work)]))];
    _pymeth_append.call(sentences, (_pymeth_join.call("", (["A step then makes ", number_words(work["made"]), " tokens per request on average and takes ", number_words(work["whole"]), " times as long as without guesses."]))));
    ridge = _pymeth_join.call("", ([fixed(work["ridge"], 0), " tokens"]));
    slower = _pymeth_join.call("", (["multiplying takes this ", gpu["title"], " longer than reading the weights"]));
    fed = _pymeth_join.call("", (["The check is fed ", tokens_words(work["fed"]), "."]));
    if ((settings["batch"] >= work["ridge"])) {
        _pymeth_append.call(sentences, (_pymeth_join.call("", (["The ", settings["batch"], " requests alone feed a step more than ", ridge, ". Above these, ", slower, ", so every guess costs as much as a token."]))));
    } else if ((work["beyond"] > 0)) {
        _pymeth_append.call(sentences, (_pymeth_join.call("", ([fed, " Above ", ridge, ", ", slower, ", so ", percent_words(work["beyond"]), " of the check is time beyond reading the weights."]))));
    } else {
        _pymeth_append.call(sentences, (_pymeth_join.call("", ([fed, " Only above ", ridge, " does multiplying take this ", gpu["title"], " longer than reading the weights, so the check takes no longer than a step without guesses."]))));
    }
    _pymeth_append.call(sentences, best_words(settings, work));
    if (_pyfunc_truthy(unconfirmed(gpu, "bf16"))) {
        _pymeth_append.call(sentences, "The matrix rate of this GPU is an unconfirmed figure.");
    }
    return _pymeth_join.call(" ", sentences);
};

verdict_words = function (work) {
    var speed;
    if ((work["gain"] >= 1.005)) {
        return _pymeth_join.call("", (["makes the server ", speed_words(work["gain"]), " as fast."]));
    }
    if ((work["gain"] >= 0.995)) {
        return "makes the server neither faster nor slower.";
    }
    speed = _pymeth_join.call("", ([speed_words(work["gain"]), " the speed it has without guesses"]));
    return _pymeth_join.call("", ["makes the server slower: it runs at ", speed, "."]);
};

best_words = function (settings, work) {
    var best, gamma, least, most, stub129_, than, verb;
    stub129_ = [work["best"], work["least"], work["most"], settings["gamma"]];
    best = stub129_[0];least = stub129_[1];most = stub129_[2];gamma = stub129_[3];
    if (_pyfunc_op_equals(best, 0)) {
        return "No number of guesses is faster than none.";
    }
    if ((_pyfunc_op_equals(least, most) && _pyfunc_op_equals(best, gamma))) {
        return _pymeth_join.call("", ["Of up to ", MOST_GUESSES, " guesses, this number is best."]);
    }
    verb = (_pyfunc_op_equals(most, 1))? ("is") : ("are");
    than = _pymeth_join.call("", ([speed_words(work["gains"][best]), " as fast"]));
    if (((((gamma < least) || (gamma > most))) && (((work["gains"][best]) < _pyfunc_op_mult(1.01, work["gain"]))))) {
        than = "less than 1 % faster";
    }
    return _pymeth_join.call("", ["Of up to ", MOST_GUESSES, " guesses, ", range_words(least, most), " ", verb, " best: ", than, "."]);
};

range_words = function (least, most) {
    if (_pyfunc_op_equals(least, most)) {
        return _pymeth_join.call("", [least]);
    }
    return ((_pyfunc_op_equals(most, (least + 1))))? (_pymeth_join.call("", [least, " and ", most])) : (_pymeth_join.call("", [least, " to ", most]));
};

speculation_formula = function (settings, work) {
    var batch, check, check_of, cost, gamma, made, ridge, share, stub130_, stub131_, stub132_, total;
    stub130_ = [trimmed(settings["acceptance"], 2), trimmed(settings["cost"], 2)];
    share = stub130_[0];cost = stub130_[1];
    stub131_ = [settings["gamma"], settings["batch"], fixed(work["ridge"], 0)];
    gamma = stub131_[0];batch = stub131_[1];ridge = stub131_[2];
    stub132_ = [number_words(work["made"]), number_words(work["check"])];
    made = stub132_[0];check = stub132_[1];
    total = number_words(work["whole"]);
    check_of = _pymeth_join.call("", ["max(1, ", batch, " \u00d7 ", gamma + 1, " / ", ridge, ") / max(1, ", batch, " / ", ridge, ")"]);
    return [_pymeth_join.call("", ["tokens per step: (1 \u2212 ", share, "^", gamma + 1, ") / (1 \u2212 ", share, ") = ", made]), _pymeth_join.call("", ["time of the check: ", check_of, " = ", check, " steps"]), _pymeth_join.call("", ["time in all: ", gamma, " \u00d7 ", cost, " + ", check, " = ", total, " steps"]), _pymeth_join.call("", (["speed-up: ", made, " / ", total, " = ", fixed(work["gain"], 2)])), "(weights of a dense model in 16 bits, read once; attention is left out)"];
};

speculation_numbers = function (work) {
    var best, best_text, numbers;
    best = work["best"];
    best_text = "0";
    if ((best > 0)) {
        numbers = range_words(work["least"], work["most"]);
        best_text = _pymeth_join.call("", ([numbers, " (", speed_words(work["gains"][best]), ")"]));
    }
    return [({label: "Speed-up", text: speed_words(work["gain"])}), ({label: "Tokens per step, each request", text: number_words(work["made"])}), ({label: "Time of guessing and check", text: steps_words(work["whole"])}), ({label: "Time of the check", text: steps_words(work["check"])}), ({label: "Of that, above the time of the weights", text: percent_words(work["beyond"])}), ({label: "Ridge of the GPU", text: _pymeth_join.call("", ([fixed(work["ridge"], 0), " tokens per step"]))}), ({label: "Best number of guesses", text: best_text})];
};

steps_words = function (steps) {
    var text;
    text = number_words(steps);
    return (_pyfunc_op_equals(text, "1"))? ("1 step") : (_pymeth_join.call("", [text, " steps"]));
};

speculation_curves = function (settings, work) {
    var alone, bound, gain, gains, last, lines, points, stub133_, stub134_seq, stub135_itr, stub136_, stub136_i0, stub136_iter0, stub136_n, top, unbound, upright, x, y;
    stub133_ = [work["gains"], work["alone"], (work["gains"].length) - 1];
    gains = stub133_[0];alone = stub133_[1];last = stub133_[2];
    top = 1.25;
    stub134_seq = alone;
    if ((typeof stub134_seq === "object") && (!Array.isArray(stub134_seq))) { stub134_seq = Object.keys(stub134_seq);}
    for (stub135_itr = 0; stub135_itr < stub134_seq.length; stub135_itr += 1) {
        gain = stub134_seq[stub135_itr];
        top = Math.max(top, gain);
    }
    y = axis_linear("times as fast as without guesses", _pyfunc_op_mult(top, 1.12), 1);
    lines = [[_pymeth_join.call("", (["batch ", settings["batch"]])), "ink", (function list_comprehension (iter0) {var res = [];var n, i0;if ((typeof iter0 === "object") && (!Array.isArray(iter0))) {iter0 = Object.keys(iter0);}for (i0=0; i0<iter0.length; i0++) {n = iter0[i0];{res.push([n, gains[n]]);}}return res;}).call(this, _pyfunc_range(0, (last + 1), 1)), false], ["no guesses", "recomputed", [[0, 1], [last, 1]], false]];
    if ((settings["batch"] > 1)) {
        stub136_ = [];stub136_iter0 = _pyfunc_range(0, (last + 1), 1);if ((typeof stub136_iter0 === "object") && (!Array.isArray(stub136_iter0))) {stub136_iter0 = Object.keys(stub136_iter0);}for (stub136_i0=0; stub136_i0<stub136_iter0.length; stub136_i0++) {stub136_n = stub136_iter0[stub136_i0];{stub136_.push([stub136_n, alone[stub136_n]]);}}
        unbound = stub136_;
        _pymeth_append.call(lines, ["batch 1", "weights", unbound, true]);
    }
    bound = (work["ridge"] / settings["batch"]) - 1;
    if (((bound > 0) && (bound < last))) {
        upright = [[bound, 0], [bound, _pyfunc_op_mult(0.95, y["max"])]];
        _pymeth_append.call(lines, ([_pymeth_join.call("", (["ridge, ", fixed(work["ridge"], 0), " tokens"])), "muted", upright, true]));
    }
    points = [speed_point(settings["gamma"], work, "ink", "")];
    if (((settings["gamma"] < work["least"]) || (settings["gamma"] > work["most"]))) {
        _pymeth_append.call(points, speed_point(work["best"], work, "muted", "best: "));
    }
    x = axis_counts("guesses per request and step", last);
    return curves_panel("Speed-up by the number of guesses", x, y, lines, points);
};

speed_words = function (gain) {
    return _pymeth_join.call("", [fixed(gain, 2), " times"]);
};

speed_point = function (guesses, work, role, before) {
    var gain, label;
    gain = work["gains"][guesses];
    label = _pymeth_join.call("", [before, count_words(guesses, "guess", "guesses")]);
    if (_pyfunc_op_equals(before, "")) {
        label = _pymeth_join.call("", [label, ", ", speed_words(gain)]);
    }
    return [label, role, guesses, gain];
};

speculation_bars = function (settings, work) {
    var bars, guessing, label, made, more, most, parts, reading, stub137_, stub138_;
    stub137_ = [work["guessing"], Math.min(work["reading"], work["check"])];
    guessing = stub137_[0];reading = stub137_[1];
    parts = [];
    if ((guessing > 0)) {
        _pymeth_append.call(parts, ["guessing", guessing, "query"]);
    }
    _pymeth_append.call(parts, ["check: reading the weights", reading, "weights"]);
    if ((work["beyond"] > 0)) {
        more = work["check"] - reading;
        _pymeth_append.call(parts, ["check: arithmetic beyond that", more, "recomputed"]);
    }
    made = work["made"];
    bars = [["without guesses", [["plain steps", made, "muted"]]], ["with guesses", parts]];
    stub138_ = [_pymeth_join.call("", ["Time of ", number_words(made), " tokens per request"]), Math.max(made, work["whole"])];
    label = stub138_[0];most = stub138_[1];
    return bars_panel(label, "steps without guesses", _pyfunc_op_mult(most, 1.04), bars);
};

guessed_tokens = function (acceptance, gamma) {
    var _, total;
    total = 0.0;
    for (_ = 0; _ < _pyfunc_int(gamma) + 1; _ += 1) {
        total = _pyfunc_op_mult(total, acceptance) + 1;
    }
    return total;
};

guessing_gain = function (acceptance, gamma, cost, batch, ridge) {
    var check;
    check = (batched_time(_pyfunc_op_mult(batch, (gamma + 1)), ridge)) / batched_time(batch, ridge);
    return guessed_tokens(acceptance, gamma) / (_pyfunc_op_add(_pyfunc_op_mult(gamma, cost), check));
};

latent_scene = function (settings, tables) {
    var sizes, step, verdicts, work;
    sizes = tables["latents"][settings["model"]];
    work = latent_work(sizes, settings);
    verdicts = ({absorb: "absorbing takes fewer operations", expand: "expanding takes fewer operations", same: "both forms take the same number of operations"});
    step = _pymeth_join.call("", ([new_words(work["fresh"]), " and ", fixed(work["context"], 0), " in the cache"]));
    if (_pyfunc_op_equals(work["fresh"], work["context"])) {
        step = _pymeth_join.call("", (["a prompt of ", tokens_words(work["fresh"]), " from scratch"]));
    }
    return ({title: _pymeth_join.call("", ([sizes["title"], ", ", step, ": ", verdicts[work["better"]]])), summary: latent_summary(sizes, settings, work), formula: latent_formula(sizes, work), numbers: [({label: "Expanded form", text: flop_words(work["forms"]["expanded"])}), ({label: "Absorbed form", text: flop_words(work["forms"]["absorbed"])}), ({label: "Expanded / absorbed", text: ratio_words(work)}), ({label: "Expanding saves from", text: new_words(work["first"])}), ({label: "Latents read", text: bytes_words(work["latent_bytes"], 1024)}), ({label: "The same, expanded", text: bytes_words(work["expanded_bytes"], 1024)})], panels: [latent_bars(work), latent_curve(work)]});
};

latent_forms = function (sizes, fresh, context) {
    var heads, matrices, nope, per_query, rope, shared, stub139_, value;
    stub139_ = [sizes["heads"], sizes["nope"], sizes["rope"], sizes["value"]];
    heads = stub139_[0];nope = stub139_[1];rope = stub139_[2];value = stub139_[3];
    matrices = _pyfunc_op_mult((_pyfunc_op_mult(_pyfunc_op_mult(2, sizes["latent"]), heads)), _pyfunc_op_add(nope, value));
    per_query = _pyfunc_op_mult((_pyfunc_op_mult(_pyfunc_op_mult(2, context), heads)), (_pyfunc_op_add(_pyfunc_op_add(nope, rope), value)));
    shared = _pyfunc_op_mult((_pyfunc_op_mult(_pyfunc_op_mult(2, context), heads)), (_pyfunc_op_add(_pyfunc_op_mult(2, sizes["latent"]), rope)));
    return ({expanding: _pyfunc_op_mult(context, matrices), expanded_attention: _pyfunc_op_mult(fresh, per_query), expanded: _pyfunc_op_add(_pyfunc_op_mult(context, matrices), _pyfunc_op_mult(fresh, per_query)), absorbing: _pyfunc_op_mult(fresh, matrices), absorbed_attention: _pyfunc_op_mult(fresh, shared), absorbed: _pyfunc_op_mult(fresh, _pyfunc_op_add(shared, matrices)), each_expanded: per_query, each_absorbed: _pyfunc_op_add(shared, matrices)});
};

latent_work = function (sizes, settings) {
    var better, context, crossing, dims, forms, forms_at, fresh, ratios, stub140_seq, stub141_itr, tokens;
    context = settings["context"];
    fresh = Math.min(settings["new"], context);
    forms = latent_forms(sizes, fresh, context);
    better = ((forms["absorbed"] < forms["expanded"]))? ("absorb") : ("expand");
    ratios = [];
    stub140_seq = curve_tokens(Math.min(MOST_NEW, context));
    if ((typeof stub140_seq === "object") && (!Array.isArray(stub140_seq))) { stub140_seq = Object.keys(stub140_seq);}
    for (stub141_itr = 0; stub141_itr < stub140_seq.length; stub141_itr += 1) {
        tokens = stub140_seq[stub141_itr];
        forms_at = latent_forms(sizes, tokens, context);
        _pymeth_append.call(ratios, ([tokens, forms_at["expanded"] / forms_at["absorbed"]]));
    }
    crossing = tokens_to_amortise(forms["each_expanded"], forms["each_absorbed"], forms["expanding"]);
    dims = _pyfunc_op_add(_pyfunc_op_add(sizes["nope"], sizes["rope"]), sizes["value"]);
    return ({fresh: fresh, context: context, forms: forms, better: (_pyfunc_op_equals(forms["absorbed"], forms["expanded"]))? ("same") : (better), ratio: forms["expanded"] / forms["absorbed"], ratios: ratios, crossing: crossing, first: Math.floor(crossing/1) + 1, latent_bytes: _pyfunc_op_mult((_pyfunc_op_mult(context, _pyfunc_op_add(sizes["latent"], sizes["rope"]))), 2), expanded_bytes: _pyfunc_op_mult((_pyfunc_op_mult(_pyfunc_op_mult(context, sizes["heads"]), dims)), 2)});
};

latent_summary = function (sizes, settings, work) {
    var absorbed, context, expanded, expanding, forms, fresh, layer, more, sentences, step, stub142_, stub143_;
    stub142_ = [work["fresh"], work["context"], work["forms"]];
    fresh = stub142_[0];context = stub142_[1];forms = stub142_[2];
    sentences = [];
    if ((settings["new"] > context)) {
        _pymeth_append.call(sentences, (_pymeth_join.call("", (["The cache holds only ", tokens_words(context), " after the step, so ", fixed(settings["new"], 0), " cannot be new, and all ", fixed(context, 0), " count as new."]))));
    }
    step = _pymeth_join.call("", ["With ", new_words(fresh), " and ", tokens_words(context), " in the cache after the step"]);
    if (_pyfunc_op_equals(fresh, context)) {
        step = _pymeth_join.call("", ["For a prompt of ", tokens_words(fresh), " from scratch"]);
    }
    stub143_ = [flop_words(forms["expanded"]), flop_words(forms["absorbed"])];
    expanded = stub143_[0];absorbed = stub143_[1];
    layer = _pymeth_join.call("", (["one layer of ", sizes["title"]]));
    if (_pyfunc_op_equals(work["better"], "same")) {
        _pymeth_append.call(sentences, _pymeth_join.call("", [step, ", both forms take ", expanded, " in ", layer, "."]));
    } else if (_pyfunc_op_equals(work["better"], "absorb")) {
        _pymeth_append.call(sentences, (_pymeth_join.call("", ([step, ", ", layer, " takes ", absorbed, " if it absorbs the matrices and ", expanded, ", ", times_words(work["ratio"]), " as much, if it expands the latents."]))));
    } else {
        _pymeth_append.call(sentences, (_pymeth_join.call("", ([step, ", ", layer, " takes ", expanded, " if it expands the latents and ", absorbed, ", ", times_words(1 / work["ratio"]), " as much, if it absorbs the matrices."]))));
    }
    expanding = flop_words(forms["expanding"]);
    if (_pyfunc_op_equals(fresh, context)) {
        _pymeth_append.call(sentences, (_pymeth_join.call("", (["Since every token is new, both forms multiply every token by the matrices, which takes ", expanding, ". Attention then takes ", flop_words(forms["expanded_attention"]), " over expanded keys and values, but ", flop_words(forms["absorbed_attention"]), " over latents, because a latent vector is longer than the key and the value of a head."]))));
    } else {
        _pymeth_append.call(sentences, (_pymeth_join.call("", (["Expanding takes ", expanding, ", however many tokens are new. After that, each new token takes ", flop_words(forms["each_expanded"]), " instead of ", flop_words(forms["each_absorbed"]), ", so expanding saves operations from ", new_words(work["first"]), " on."]))));
    }
    more = times_words(work["expanded_bytes"] / work["latent_bytes"]);
    _pymeth_append.call(sentences, (_pymeth_join.call("", (["Both forms read ", bytes_words(work["latent_bytes"], 1024), " of latents from the cache (bfloat16). All expanded keys and values together would fill ", bytes_words(work["expanded_bytes"], 1024), ", ", more, " as much."]))));
    return _pymeth_join.call(" ", sentences);
};

flop_words = function (flops) {
    return scaled_words(flops, "FLOP");
};

latent_formula = function (sizes, work) {
    var context, forms, fresh, heads, latent, made, nope, products, rope, saved, stub144_, stub145_, value;
    stub144_ = [fixed(work["fresh"], 0), fixed(work["context"], 0), work["forms"]];
    fresh = stub144_[0];context = stub144_[1];forms = stub144_[2];
    stub145_ = [sizes["latent"], sizes["nope"], sizes["rope"], sizes["value"]];
    latent = stub145_[0];nope = stub145_[1];rope = stub145_[2];value = stub145_[3];
    made = _pymeth_join.call("", [latent, " \u00d7 (", nope, " + ", value, ")"]);
    heads = _pymeth_join.call("", ([sizes["heads"], " heads"]));
    products = _pymeth_join.call("", ["2 \u00d7 ", fresh, " \u00d7 ", context, " \u00d7 ", heads]);
    saved = _pymeth_join.call("", ["(2 \u00d7 ", latent, " \u2212 ", nope, " \u2212 ", value, ") / (", made, ")"]);
    return [_pymeth_join.call("", (["expanding the latents: 2 \u00d7 ", context, " \u00d7 ", heads, " \u00d7 ", made, " = ", flop_words(forms["expanding"])])), _pymeth_join.call("", (["attention, expanded: ", products, " \u00d7 (", _pyfunc_op_add(nope, rope), " + ", value, ") = ", flop_words(forms["expanded_attention"])])), _pymeth_join.call("", (["absorbing the matrices: 2 \u00d7 ", fresh, " \u00d7 ", heads, " \u00d7 ", made, " = ", flop_words(forms["absorbing"])])), _pymeth_join.call("", (["attention, absorbed: ", products, " \u00d7 (", _pyfunc_op_add(latent, rope), " + ", latent, ") = ", flop_words(forms["absorbed_attention"])])), _pymeth_join.call("", (["equal at 1 / (1 / ", context, " + ", saved, ") = ", trimmed(work["crossing"], 1), " new tokens"])), "(every new token is counted with every token in the cache, even where a causal mask hides it)"];
};

MOST_NEW = 8192;
new_words = function (tokens) {
    return count_words(tokens, "new token", "new tokens");
};

ratio_words = function (work) {
    return (_pyfunc_op_equals(work["better"], "same"))? ("exactly equal") : (times_words(work["ratio"]));
};

curve_tokens = function (last) {
    var at, counts;
    counts = [1];
    at = 2;
    while (at <= last) {
        _pymeth_append.call(counts, at);
        if ((at < last)) {
            _pymeth_append.call(counts, (_pyfunc_op_add(at, Math.floor(at/2))));
        }
        at = _pyfunc_op_mult(at, 2);
    }
    return counts;
};

latent_bars = function (work) {
    var bars, forms, label, most, part, parts, stub146_seq, stub147_itr, unit;
    forms = work["forms"];
    most = Math.max(forms["expanded"], forms["absorbed"]);
    unit = flops_unit(most);
    parts = [["expanding the latents", forms["expanding"], "recomputed"], ["attention", forms["expanded_attention"], "cached"], ["absorbing the matrices", forms["absorbing"], "query"], ["attention", forms["absorbed_attention"], "cached"]];
    stub146_seq = parts;
    if ((typeof stub146_seq === "object") && (!Array.isArray(stub146_seq))) { stub146_seq = Object.keys(stub146_seq);}
    for (stub147_itr = 0; stub147_itr < stub146_seq.length; stub147_itr += 1) {
        part = stub146_seq[stub147_itr];
        part[1] = part[1] / unit["size"];
    }
    label = _pymeth_join.call("", (["Operations of one layer for ", new_words(work["fresh"])]));
    bars = [["expanded", parts.slice(0,2)], ["absorbed", parts.slice(2)]];
    return bars_panel(label, unit["name"], _pyfunc_op_mult((most / unit["size"]), 1.04), bars);
};

latent_curve = function (work) {
    var crossing, label, lines, point, stub148_, upright, x, y;
    y = axis_decades("operations, expanded / absorbed", 0.1, 200, 1);
    crossing = work["crossing"];
    upright = [[crossing, y["min"]], [crossing, _pyfunc_op_mult(0.8, y["max"])]];
    lines = [[_pymeth_join.call("", ([tokens_short(work["context"]), " cached"])), "ink", work["ratios"], false], ["equal", "muted", [[1, 1], [MOST_NEW, 1]], false], [_pymeth_join.call("", [trimmed(crossing, 1), " tokens"]), "muted", upright, true]];
    label = "Above 1, absorbing takes fewer operations; below 1, expanding does";
    stub148_ = [axis_tokens("new tokens in the step", 1, MOST_NEW), [ratio_words(work), "ink"]];
    x = stub148_[0];point = stub148_[1];
    return curves_panel(label, x, y, lines, [_pyfunc_op_add(point, ([work["fresh"], work["ratio"]]))]);
};

LIGHT = ({query: "#e65105", key: "#1d5ed5", value: "#034b1c", cached: "#0f1934", recomputed: "#a93272", shared: "#550678", weights: "#5a98d9", free: "#928b85", ink: "#1f2328", muted: "#57606a", grid: "#d0d7de", card: "#ffffff"});
LIGHT_TEXT = ({query: "#cb4804", weights: "#4677aa", free: "#77716c", grid: "#717578"});
PALE = ["query", "weights", "free", "grid"];
SMALL = 12;
TITLE = 13;
BOLD = 1.12;
HALO = " stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\"";
NARROW_LETTERS = "iljtfrI.,:;'!|()[]/ -\u00b7";
WIDE_LETTERS = "mwMW@%\u00d7\u2192";
paint = function (role) {
    return _pymeth_join.call("", (["var(--kv-", role, ", ", LIGHT[role], ")"]));
};

paint_text = function (role) {
    var hexed;
    hexed = (_pyfunc_op_contains(role, LIGHT_TEXT))? (LIGHT_TEXT[role]) : (LIGHT[role]);
    return _pymeth_join.call("", ["var(--kv-", role, "-text, ", hexed, ")"]);
};

paint_on = function (role) {
    var hexed;
    hexed = (_pyfunc_op_contains(role, PALE))? ("#000000") : ("#ffffff");
    return _pymeth_join.call("", ["var(--kv-on-", role, ", ", hexed, ")"]);
};

px = function (x) {
    var above, cents, sign, tail, units, zero;
    units = Math.floor(((_pyfunc_op_mult(_pyfunc_abs(x), 100)) + 0.500001)/1);
    sign = (((x < 0) && (units > 0)))? ("-") : ("");
    above = Math.floor(units/100);
    cents = _pyfunc_int((units - _pyfunc_op_mult(above, 100)));
    if (_pyfunc_op_equals(cents, 0)) {
        return _pymeth_join.call("", [sign, _pyfunc_int(above)]);
    }
    zero = ((cents < 10))? ("0") : ("");
    tail = _pymeth_join.call("", [zero, cents]);
    if ((_pyfunc_op_equals((cents % 10), 0))) {
        tail = _pymeth_join.call("", [Math.floor(cents/10)]);
    }
    return _pymeth_join.call("", [sign, _pyfunc_int(above), ".", tail]);
};

exact = function (x) {
    var power, sign, size;
    size = _pyfunc_abs(x);
    sign = ((x < 0))? ("-") : ("");
    if ((((_pyfunc_op_equals(size, Math.floor(size/1)))) && (size < 1000000000000000))) {
        return _pymeth_join.call("", [sign, _pyfunc_int(size)]);
    }
    power = 0;
    while (size >= 1000000000) {
        size = size / 10;
        power += 1;
    }
    while ((size < 100000000) && ((power > (-300)))) {
        size = _pyfunc_op_mult(size, 10);
        power -= 1;
    }
    return _pymeth_join.call("", [sign, _pyfunc_int((Math.floor((size + 0.500001)/1))), "e", power]);
};

escaped = function (text) {
    text = _pymeth_replace.call(_pymeth_replace.call(text, "&", "&amp;"), "<", "&lt;");
    return _pymeth_replace.call(_pymeth_replace.call(text, ">", "&gt;"), ("\""), "&quot;");
};

text_width = function (text, size) {
    var letter, stub149_seq, stub150_itr, total;
    total = 0.0;
    stub149_seq = text;
    if ((typeof stub149_seq === "object") && (!Array.isArray(stub149_seq))) { stub149_seq = Object.keys(stub149_seq);}
    for (stub150_itr = 0; stub150_itr < stub149_seq.length; stub150_itr += 1) {
        letter = stub149_seq[stub150_itr];
        if (_pyfunc_op_contains(letter, NARROW_LETTERS)) {
            total += 0.38;
        } else if (_pyfunc_op_contains(letter, WIDE_LETTERS)) {
            total += 0.95;
        } else if (((letter >= "A") && (letter <= "Z"))) {
            total += 0.71;
        } else {
            total += 0.635;
        }
    }
    return _pyfunc_op_mult(total, size);
};

clipped = function (text, size, room) {
    if ((text_width(text, size) <= room)) {
        return text;
    }
    while ((text.length > 1) && (((_pyfunc_op_add(text_width(text, size), size)) > room))) {
        text = text.slice(0,text.length - 1);
    }
    return _pymeth_join.call("", [text, "\u2026"]);
};

words_at = function (x, y, text, colour, anchor, more) {
    var where;
    anchor = (anchor === undefined) ? "start": anchor;
    more = (more === undefined) ? "": more;
    where = _pymeth_join.call("", ["x=\"", px(x), "\" y=\"", px(y), "\""]);
    if ((!_pyfunc_op_equals(anchor, "start"))) {
        where = _pymeth_join.call("", [where, " text-anchor=\"", anchor, "\""]);
    }
    return _pymeth_join.call("", ["<text ", where, " fill=\"", colour, "\"", more, ">", escaped(text), "</text>"]);
};

wrapped = function (text, size, room) {
    var letter, line, lines, stub151_, stub152_seq, stub153_itr, word;
    lines = [];
    stub151_ = ["", ""];
    line = stub151_[0];word = stub151_[1];
    stub152_seq = text + " ";
    if ((typeof stub152_seq === "object") && (!Array.isArray(stub152_seq))) { stub152_seq = Object.keys(stub152_seq);}
    for (stub153_itr = 0; stub153_itr < stub152_seq.length; stub153_itr += 1) {
        letter = stub152_seq[stub153_itr];
        if ((!_pyfunc_op_equals(letter, " "))) {
            word = _pyfunc_op_add(word, letter);
        } else {
            if ((((!_pyfunc_op_equals(line, ""))) && (((text_width(_pymeth_join.call("", [line, " ", word]), size)) > room)))) {
                _pymeth_append.call(lines, line);
                line = word;
            } else {
                line = (_pyfunc_op_equals(line, ""))? (word) : (_pymeth_join.call("", [line, " ", word]));
            }
            word = "";
        }
    }
    _pymeth_append.call(lines, line);
    return lines;
};

haloed = function (x, y, text, anchor, more) {
    var rim;
    anchor = (anchor === undefined) ? "start": anchor;
    more = (more === undefined) ? "": more;
    rim = _pymeth_join.call("", [more, " stroke=\"", paint("card"), "\"", HALO]);
    return words_at(x, y, text, paint("ink"), anchor, rim);
};

segment = function (x0, y0, x1, y1, role, more) {
    var ends;
    more = (more === undefined) ? "": more;
    ends = _pymeth_join.call("", ["x1=\"", px(x0), "\" y1=\"", px(y0), "\" x2=\"", px(x1), "\" y2=\"", px(y1), "\""]);
    return _pymeth_join.call("", ["<line ", ends, " stroke=\"", paint(role), "\"", more, "/>"]);
};

box = function (x, y, width, height, role, more) {
    var edge, ink, size, where;
    more = (more === undefined) ? "": more;
    if (_pyfunc_op_equals(role, "free")) {
        ink = _pymeth_join.call("", ["fill=\"", paint("card"), "\" stroke=\"", paint("free"), "\" stroke-width=\"1.5\""]);
        edge = ((width > 1.5))? (0.75) : (width / 2);
        where = _pymeth_join.call("", ["x=\"", px(_pyfunc_op_add(x, edge)), "\" y=\"", px(y + 0.75), "\""]);
        size = _pymeth_join.call("", ["width=\"", px(width - _pyfunc_op_mult(2, edge)), "\" height=\"", px(height - 1.5), "\""]);
        return _pymeth_join.call("", ["<rect ", where, " ", size, " ", ink, more, "/>"]);
    }
    where = _pymeth_join.call("", ["x=\"", px(x), "\" y=\"", px(y), "\" width=\"", px(width), "\" height=\"", px(height), "\""]);
    if (_pyfunc_op_equals(role, "grid")) {
        more = _pymeth_join.call("", [more, " style=\"stroke: ", paint("muted"), "\""]);
    }
    return _pymeth_join.call("", ["<rect ", where, " fill=\"", paint(role), "\"", more, "/>"]);
};

data_of = function (label, value) {
    return _pymeth_join.call("", [" data-label=\"", escaped(label), "\" data-value=\"", exact(value), "\""]);
};

place = function (axis, value) {
    var high, low, stub154_;
    stub154_ = [axis["min"], axis["max"]];
    low = stub154_[0];high = stub154_[1];
    if (_pyfunc_op_equals(axis["scale"], "log")) {
        if ((value <= 0)) {
            return 0;
        }
        return (log10(value) - log10(low)) / (log10(high) - log10(low));
    }
    return (value - low) / (high - low);
};

legend_at = function (y, width, entries) {
    var body, dash, entry, height, label, line, middle, more, room, stub155_, stub156_seq, stub157_itr, swatch, x;
    body = [];
    stub155_ = [0.0, 0];
    x = stub155_[0];line = stub155_[1];
    stub156_seq = entries;
    if ((typeof stub156_seq === "object") && (!Array.isArray(stub156_seq))) { stub156_seq = Object.keys(stub156_seq);}
    for (stub157_itr = 0; stub157_itr < stub156_seq.length; stub157_itr += 1) {
        entry = stub156_seq[stub157_itr];
        swatch = (_pyfunc_op_contains("line", entry))? (22) : (12);
        room = (swatch + 6) + text_width(entry["label"], SMALL);
        if (((x > 0) && ((_pyfunc_op_add(x, room) > width)))) {
            x = 0.0;
            line += 1;
        }
        middle = (_pyfunc_op_add(y, _pyfunc_op_mult(18, line))) + 8;
        if (_pyfunc_op_contains("line", entry)) {
            dash = (_pyfunc_truthy(entry["dashed"]))? (" stroke-dasharray=\"6 4\"") : ("");
            more = _pymeth_join.call("", [" stroke-width=\"2.2\"", dash]);
            _pymeth_append.call(body, (segment(x, middle, _pyfunc_op_add(x, swatch), middle, entry["role"], more)));
        } else {
            _pymeth_append.call(body, box(x, middle - 6, 12, 12, entry["role"]));
        }
        label = clipped(entry["label"], SMALL, (width - swatch) - 6);
        _pymeth_append.call(body, (words_at(_pyfunc_op_add(x, swatch) + 6, middle + 4, label, paint("ink"))));
        x = _pyfunc_op_add(x, room) + 16;
    }
    height = ((entries.length > 0))? (_pyfunc_op_mult(18, (line + 1))) : (0);
    return ({body: _pymeth_join.call("", body), height: height});
};

BAR = 26;
SHORT = 50;
SHARE = 0.26;
label_room = function (labels, width) {
    var label, stub158_seq, stub159_itr, widest;
    widest = 0.0;
    stub158_seq = labels;
    if ((typeof stub158_seq === "object") && (!Array.isArray(stub158_seq))) { stub158_seq = Object.keys(stub158_seq);}
    for (stub159_itr = 0; stub159_itr < stub158_seq.length; stub159_itr += 1) {
        label = stub158_seq[stub159_itr];
        widest = Math.max(widest, (text_width(label, SMALL) + 10));
    }
    return ((widest <= _pyfunc_op_mult(SHARE, width)))? (widest) : (0);
};

bars_top = function (panel) {
    var bar, mark, part, stub160_seq, stub161_itr, stub162_seq, stub163_itr, stub164_seq, stub165_itr, top, total;
    top = panel["max"];
    stub162_seq = panel["bars"];
    if ((typeof stub162_seq === "object") && (!Array.isArray(stub162_seq))) { stub162_seq = Object.keys(stub162_seq);}
    for (stub163_itr = 0; stub163_itr < stub162_seq.length; stub163_itr += 1) {
        bar = stub162_seq[stub163_itr];
        total = 0.0;
        stub160_seq = bar["parts"];
        if ((typeof stub160_seq === "object") && (!Array.isArray(stub160_seq))) { stub160_seq = Object.keys(stub160_seq);}
        for (stub161_itr = 0; stub161_itr < stub160_seq.length; stub161_itr += 1) {
            part = stub160_seq[stub161_itr];
            total = _pyfunc_op_add(total, Math.max(0, part["value"]));
        }
        top = Math.max(top, total);
    }
    stub164_seq = panel["marks"];
    if ((typeof stub164_seq === "object") && (!Array.isArray(stub164_seq))) { stub164_seq = Object.keys(stub164_seq);}
    for (stub165_itr = 0; stub165_itr < stub164_seq.length; stub165_itr += 1) {
        mark = stub164_seq[stub165_itr];
        top = Math.max(top, mark["value"]);
    }
    return ((top > 0))? (top) : (1);
};

bar_ticks = function (top) {
    var factor, step, stub166_seq, stub167_itr, ticks, wide;
    step = 1.0;
    while (_pyfunc_op_mult(step, 5) >= top) {
        step = step / 10;
    }
    while (_pyfunc_op_mult(step, 50) < top) {
        step = _pyfunc_op_mult(step, 10);
    }
    stub166_seq = [10, 5, 2];
    if ((typeof stub166_seq === "object") && (!Array.isArray(stub166_seq))) { stub166_seq = Object.keys(stub166_seq);}
    for (stub167_itr = 0; stub167_itr < stub166_seq.length; stub167_itr += 1) {
        factor = stub166_seq[stub167_itr];
        if (((_pyfunc_op_mult(_pyfunc_op_mult(step, factor), 5)) >= top)) {
            wide = _pyfunc_op_mult(step, factor);
        }
    }
    ticks = [];
    while (_pyfunc_op_mult(ticks.length, wide) <= _pyfunc_op_mult(top, 1.000000001)) {
        _pymeth_append.call(ticks, _pyfunc_op_mult(ticks.length, wide));
    }
    return ticks;
};

part_words = function (part, unit, room) {
    var size, stub168_seq, stub169_itr, words;
    size = number_words(part["value"]);
    if ((!_pyfunc_op_equals(unit, ""))) {
        size = _pymeth_join.call("", [size, " ", unit]);
    }
    stub168_seq = [_pymeth_join.call("", ([part["label"], " ", size])), size];
    if ((typeof stub168_seq === "object") && (!Array.isArray(stub168_seq))) { stub168_seq = Object.keys(stub168_seq);}
    for (stub169_itr = 0; stub169_itr < stub168_seq.length; stub169_itr += 1) {
        words = stub168_seq[stub169_itr];
        if (((text_width(words, SMALL) + 10) <= room)) {
            return words;
        }
    }
    return "";
};

draw_parts = function (bar, unit, x, y, scale) {
    var body, colour, length, more, part, stub170_seq, stub171_itr, words;
    body = [];
    stub170_seq = bar["parts"];
    if ((typeof stub170_seq === "object") && (!Array.isArray(stub170_seq))) { stub170_seq = Object.keys(stub170_seq);}
    for (stub171_itr = 0; stub171_itr < stub170_seq.length; stub171_itr += 1) {
        part = stub170_seq[stub171_itr];
        length = _pyfunc_op_mult(Math.max(0, part["value"]), scale);
        more = data_of(part["label"], part["value"]);
        if ((!_pyfunc_op_equals(part["role"], "free"))) {
            more = _pymeth_join.call("", [more, " stroke=\"", paint("card"), "\" stroke-width=\"1\""]);
        }
        if ((length > 0)) {
            _pymeth_append.call(body, box(x, y, length, BAR, part["role"], more));
        }
        words = part_words(part, unit, length);
        if ((words.length > 0)) {
            colour = (_pyfunc_op_equals(part["role"], "free"))? (paint("muted")) : (paint_on(part["role"]));
            _pymeth_append.call(body, (words_at(_pyfunc_op_add(x, (length / 2)), y + 17, words, colour, "middle")));
        }
        x = _pyfunc_op_add(x, length);
    }
    return _pymeth_join.call("", body);
};

draw_bars = function (panel, width) {
    var anchor, at, bar, below, body, bottom, edge, end, foot, free, half, i, last, left, legend, mark, more, part, room, row, scale, short, side, start, stub172_, stub173_seq, stub174_itr, stub175_seq, stub176_itr, stub177_, stub178_, tick, ticks, top, unit, words, x, y;
    body = [];
    stub172_ = [bars_top(panel), panel["unit"]];
    top = stub172_[0];unit = stub172_[1];
    side = label_room((function list_comprehension (iter0) {var res = [];var bar, i0;if ((typeof iter0 === "object") && (!Array.isArray(iter0))) {iter0 = Object.keys(iter0);}for (i0=0; i0<iter0.length; i0++) {bar = iter0[i0];{res.push(bar["label"]);}}return res;}).call(this, panel["bars"]), width);
    row = ((side > 0))? (BAR + 10) : (BAR + 26);
    short = text_width(unit, SMALL) <= SHORT;
    ticks = bar_ticks(top);
    last = number_words(ticks[ticks.length -1]);
    if (_pyfunc_truthy(short)) {
        last = _pymeth_join.call("", [last, " ", unit]);
    }
    end = width - (Math.max(2, ((text_width(last, SMALL) / 2) - (_pyfunc_op_mult((1 - (ticks[ticks.length -1] / top)), (width - side))))));
    scale = (end - side) / top;
    start = 24 + (_pyfunc_op_mult(17, (panel["marks"].length)));
    bottom = (_pyfunc_op_add(start, (_pyfunc_op_mult(row, (panel["bars"].length))))) - 2;
    edge = ((_pyfunc_op_add(side, _pyfunc_op_mult(ticks[ticks.length -1], scale))) - (text_width(last, SMALL) / 2)) - 4;
    free = -1.0;
    stub173_seq = ticks;
    if ((typeof stub173_seq === "object") && (!Array.isArray(stub173_seq))) { stub173_seq = Object.keys(stub173_seq);}
    for (stub174_itr = 0; stub174_itr < stub173_seq.length; stub174_itr += 1) {
        tick = stub173_seq[stub174_itr];
        x = _pyfunc_op_add(side, _pyfunc_op_mult(tick, scale));
        if ((x > 0)) {
            _pymeth_append.call(body, segment(x, start, x, bottom, "grid"));
        }
        words = (_pyfunc_op_equals(tick, ticks[ticks.length -1]))? (last) : (number_words(tick));
        half = text_width(words, SMALL) / 2;
        if ((_pyfunc_op_equals(tick, ticks[ticks.length -1]) || (((((x - half) >= free)) && ((_pyfunc_op_add(x, half) <= edge)))) || _pyfunc_op_equals(x, 0))) {
            anchor = (_pyfunc_op_equals(x, 0))? ("start") : ("middle");
            _pymeth_append.call(body, (words_at(x, bottom + 16, words, paint("muted"), anchor)));
            free = _pyfunc_op_add(x, half) + 4;
        }
    }
    legend = [];
    for (i = 0; i < panel["bars"].length; i += 1) {
        bar = panel["bars"][i];
        y = ((_pyfunc_op_add((_pyfunc_op_add(start, _pyfunc_op_mult(row, i))), row)) - BAR) - 6;
        if ((side > 0)) {
            _pymeth_append.call(body, (words_at(side - 10, y + 17, bar["label"], paint("ink"), "end")));
        } else {
            words = clipped(bar["label"], SMALL, width);
            _pymeth_append.call(body, haloed(0, y - 5, words));
        }
        _pymeth_append.call(body, (draw_parts(bar, (_pyfunc_truthy(short))? (unit) : (""), side, y, scale)));
        stub175_seq = bar["parts"];
        if ((typeof stub175_seq === "object") && (!Array.isArray(stub175_seq))) { stub175_seq = Object.keys(stub175_seq);}
        for (stub176_itr = 0; stub176_itr < stub175_seq.length; stub176_itr += 1) {
            part = stub175_seq[stub176_itr];
            add_once(legend, part["role"], part["label"]);
        }
    }
    if ((side > 0)) {
        _pymeth_append.call(body, segment(side, start, side, bottom, "muted"));
    }
    for (i = 0; i < panel["marks"].length; i += 1) {
        mark = panel["marks"][i];
        stub177_ = [_pyfunc_op_add(side, _pyfunc_op_mult(mark["value"], scale)), 36 + _pyfunc_op_mult(17, i)];
        x = stub177_[0];y = stub177_[1];
        more = _pymeth_join.call("", ([" stroke-width=\"1.5\" stroke-dasharray=\"4 3\"", data_of(mark["label"], mark["value"])]));
        _pymeth_append.call(body, segment(x, y - 11, x, bottom, "ink", more));
        left = (x - 5) > ((width - x) - 5);
        room = (_pyfunc_truthy(left))? (x - 5) : ((width - x) - 5);
        words = clipped(mark["label"], SMALL, room);
        stub178_ = (_pyfunc_truthy(left))? ([x - 5, "end"]) : ([x + 5, "start"]);
        at = stub178_[0];anchor = stub178_[1];
        _pymeth_append.call(body, (words_at(at, y, words, paint("ink"), anchor)));
    }
    foot = bottom + 26;
    if ((!_pyfunc_truthy(short))) {
        words = clipped(unit, SMALL, width);
        _pymeth_append.call(body, (words_at(_pyfunc_op_add(side, end) / 2, bottom + 33, words, paint("muted"), "middle")));
        foot = bottom + 43;
    }
    below = legend_at(foot, width, legend);
    _pymeth_append.call(body, below["body"]);
    return ({body: _pymeth_join.call("", body), height: _pyfunc_op_add(foot, below["height"])});
};

add_once = function (legend, role, label) {
    var entry, stub179_seq, stub180_itr;
    stub179_seq = legend;
    if ((typeof stub179_seq === "object") && (!Array.isArray(stub179_seq))) { stub179_seq = Object.keys(stub179_seq);}
    for (stub180_itr = 0; stub180_itr < stub179_seq.length; stub180_itr += 1) {
        entry = stub179_seq[stub180_itr];
        if ((_pyfunc_op_equals(entry["role"], role) && _pyfunc_op_equals(entry["label"], label))) {
            return null;
        }
    }
    _pymeth_append.call(legend, ({role: role, label: label}));
    return null;
};

draw_cells = function (panel, width) {
    var base, below, body, high, i, ink, label, letter, line, middle, more, most, pitch, role, row, side, size, stub181_seq, stub182_itr, stub183_, stub184_, stub185_seq, stub186_itr, top, words, x, y;
    body = [];
    most = 1;
    stub181_seq = panel["rows"];
    if ((typeof stub181_seq === "object") && (!Array.isArray(stub181_seq))) { stub181_seq = Object.keys(stub181_seq);}
    for (stub182_itr = 0; stub182_itr < stub181_seq.length; stub182_itr += 1) {
        row = stub181_seq[stub182_itr];
        most = Math.max(most, (row["cells"].length));
    }
    side = label_room((function list_comprehension (iter0) {var res = [];var row, i0;if ((typeof iter0 === "object") && (!Array.isArray(iter0))) {iter0 = Object.keys(iter0);}for (i0=0; i0<iter0.length; i0++) {row = iter0[i0];{res.push(row["label"]);}}return res;}).call(this, panel["rows"]), width);
    pitch = Math.min(24, ((width - side) / most));
    size = _pyfunc_op_mult(pitch, 0.88);
    line = ((side > 0))? (Math.max(pitch, 16)) : (pitch + 18);
    y = 24.0;
    stub185_seq = panel["rows"];
    if ((typeof stub185_seq === "object") && (!Array.isArray(stub185_seq))) { stub185_seq = Object.keys(stub185_seq);}
    for (stub186_itr = 0; stub186_itr < stub185_seq.length; stub186_itr += 1) {
        row = stub185_seq[stub186_itr];
        top = ((side > 0))? (_pyfunc_op_add(y, ((line - pitch) / 2))) : (y + 18);
        if ((side > 0)) {
            words = words_at(side - 10, (_pyfunc_op_add(y, (line / 2))) + 4, row["label"], paint("ink"), "end");
        } else {
            label = clipped(row["label"], SMALL, width);
            words = words_at(0, y + 13, label, paint("ink"));
        }
        _pymeth_append.call(body, words);
        for (i = 0; i < row["cells"].length; i += 1) {
            role = row["cells"][i];
            if ((!_pyfunc_op_equals(role, ""))) {
                more = data_of(row["label"], i);
                x = _pyfunc_op_add((_pyfunc_op_add(side, _pyfunc_op_mult(pitch, i))), _pyfunc_op_mult(pitch, 0.06));
                _pymeth_append.call(body, (box(x, _pyfunc_op_add(top, _pyfunc_op_mult(pitch, 0.06)), size, size, role, more)));
                if ((_pyfunc_op_contains("letters", row) && ((!_pyfunc_op_equals((row["letters"][i]), " "))))) {
                    stub183_ = [row["letters"][i], Math.min(SMALL, _pyfunc_op_mult(size, 0.9))];
                    letter = stub183_[0];high = stub183_[1];
                    ink = (_pyfunc_op_equals(role, "free"))? (paint("ink")) : (paint_on(role));
                    stub184_ = [_pyfunc_op_add(x, (size / 2)), _pyfunc_op_add((_pyfunc_op_add(top, (pitch / 2))), _pyfunc_op_mult(high, 0.3))];
                    middle = stub184_[0];base = stub184_[1];
                    more = _pymeth_join.call("", [" font-size=\"", px(high), "\""]);
                    _pymeth_append.call(body, words_at(middle, base, letter, ink, "middle", more));
                }
            }
        }
        y = _pyfunc_op_add(y, line);
    }
    below = legend_at(y + 8, width, panel["legend"]);
    _pymeth_append.call(body, below["body"]);
    return ({body: _pymeth_join.call("", body), height: (y + 8) + below["height"]});
};

draw_table = function (panel, width) {
    var across, below, body, count, i, j, middle, row, side, stub187_, stub188_seq, stub189_itr, stub190_seq, stub191_itr, x, y;
    body = [];
    stub187_ = [0.0, 46.0, panel["columns"].length];
    side = stub187_[0];y = stub187_[1];count = stub187_[2];
    stub188_seq = panel["rows"];
    if ((typeof stub188_seq === "object") && (!Array.isArray(stub188_seq))) { stub188_seq = Object.keys(stub188_seq);}
    for (stub189_itr = 0; stub189_itr < stub188_seq.length; stub189_itr += 1) {
        row = stub188_seq[stub189_itr];
        side = Math.max(side, (text_width(row["label"], SMALL) + 10));
    }
    across = Math.min(170, (((width - side) / count) - 8));
    for (i = 0; i < count; i += 1) {
        x = _pyfunc_op_add(side, (_pyfunc_op_mult((across + 8), i)));
        middle = _pyfunc_op_add(x, (across / 2));
        _pymeth_append.call(body, (words_at(middle, 38, panel["columns"][i], paint("muted"), "middle")));
        for (j = 0; j < panel["rows"].length; j += 1) {
            row = panel["rows"][j];
            _pymeth_append.call(body, (draw_row(row["columns"][i], row["label"], x, _pyfunc_op_add(y, _pyfunc_op_mult(BAR, j)), across)));
        }
    }
    stub190_seq = panel["rows"];
    if ((typeof stub190_seq === "object") && (!Array.isArray(stub190_seq))) { stub190_seq = Object.keys(stub190_seq);}
    for (stub191_itr = 0; stub191_itr < stub190_seq.length; stub191_itr += 1) {
        row = stub190_seq[stub191_itr];
        _pymeth_append.call(body, (words_at(side - 10, y + 17, row["label"], paint("ink"), "end")));
        y = _pyfunc_op_add(y, BAR);
    }
    below = legend_at(y + 8, width, panel["legend"]);
    _pymeth_append.call(body, below["body"]);
    return ({body: _pymeth_join.call("", body), height: (y + 8) + below["height"]});
};

draw_row = function (cells, label, x, y, across) {
    var body, cell, i, length, more, role, room, start, stub192_, stub193_, text;
    body = [];
    for (i = 0; i < cells.length; i += 1) {
        stub192_ = [cells[i], across / cells.length];
        cell = stub192_[0];room = stub192_[1];
        stub193_ = [cell["role"], cell["text"], _pyfunc_op_add(x, _pyfunc_op_mult(room, i))];
        role = stub193_[0];text = stub193_[1];start = stub193_[2];
        if (_pyfunc_op_contains("share", cell)) {
            length = _pyfunc_op_mult(cell["share"], (across - 36));
            more = data_of(label, cell["share"]);
            _pymeth_append.call(body, box(start, y + 5, length, BAR - 10, role, more));
            _pymeth_append.call(body, (words_at(_pyfunc_op_add(start, length) + 4, y + 17, text, paint("ink"))));
        } else {
            _pymeth_append.call(body, (box(start + 1, y + 1, room - 2, BAR - 2, role, data_of(label, i))));
            _pymeth_append.call(body, (words_at(_pyfunc_op_add(start, (room / 2)), y + 17, text, paint_on(role), "middle")));
        }
    }
    return _pymeth_join.call("", body);
};

draw_curves = function (panel, width) {
    var area, below, body, bottom, entries, height, inner, left, line, right, stub194_seq, stub195_itr, stub196_, stub197_, stub198_, stub198_i0, stub198_iter0, top, view, where;
    area = plot_area(panel, width);
    body = [words_at(0, 31, panel["y"]["label"], paint("muted"))];
    _pymeth_append.call(body, draw_axes(panel, area));
    inner = [];
    stub194_seq = panel["lines"];
    if ((typeof stub194_seq === "object") && (!Array.isArray(stub194_seq))) { stub194_seq = Object.keys(stub194_seq);}
    for (stub195_itr = 0; stub195_itr < stub194_seq.length; stub195_itr += 1) {
        line = stub194_seq[stub195_itr];
        _pymeth_append.call(inner, draw_line(panel, line, area));
    }
    stub196_ = [area["left"] - 3, area["top"] - 3];
    left = stub196_[0];top = stub196_[1];
    stub197_ = [area["right"] + 3, area["bottom"] + 3];
    right = stub197_[0];bottom = stub197_[1];
    where = _pymeth_join.call("", ["x=\"", px(left), "\" y=\"", px(top), "\" width=\"", px(right - left), "\" height=\"", px(bottom - top), "\""]);
    view = _pymeth_join.call("", [px(left), " ", px(top), " ", px(right - left), " ", px(bottom - top)]);
    _pymeth_append.call(body, (_pymeth_join.call("", ["<svg ", where, " viewBox=\"", view, "\" overflow=\"hidden\">", _pymeth_join.call("", inner), "</svg>"])));
    _pymeth_append.call(body, draw_names(panel, area, width));
    height = area["bottom"] + 40;
    if ((!_pyfunc_truthy(area["named"]))) {
        stub198_ = [];stub198_iter0 = panel["lines"];if ((typeof stub198_iter0 === "object") && (!Array.isArray(stub198_iter0))) {stub198_iter0 = Object.keys(stub198_iter0);}for (stub198_i0=0; stub198_i0<stub198_iter0.length; stub198_i0++) {line = stub198_iter0[stub198_i0];{stub198_.push(({role: line["role"], label: line["label"], line: true, dashed: line["dashed"]}));}}
        entries = stub198_;
        below = legend_at(height + 4, width, entries);
        _pymeth_append.call(body, below["body"]);
        height = (height + 4) + below["height"];
    }
    return ({body: _pymeth_join.call("", body), height: height});
};

plot_area = function (panel, width) {
    var left, line, margin, named, over, stub199_seq, stub200_itr, stub201_seq, stub202_itr, stub203_seq, stub204_itr, tick, widest;
    left = 8.0;
    stub199_seq = panel["y"]["ticks"];
    if ((typeof stub199_seq === "object") && (!Array.isArray(stub199_seq))) { stub199_seq = Object.keys(stub199_seq);}
    for (stub200_itr = 0; stub200_itr < stub199_seq.length; stub200_itr += 1) {
        tick = stub199_seq[stub200_itr];
        left = Math.max(left, (text_width(tick["text"], SMALL) + 8));
    }
    widest = 0.0;
    stub201_seq = panel["lines"];
    if ((typeof stub201_seq === "object") && (!Array.isArray(stub201_seq))) { stub201_seq = Object.keys(stub201_seq);}
    for (stub202_itr = 0; stub202_itr < stub201_seq.length; stub202_itr += 1) {
        line = stub201_seq[stub202_itr];
        widest = Math.max(widest, (text_width(line["label"], SMALL) + 12));
    }
    named = widest <= _pyfunc_op_mult(width, 0.3);
    margin = (_pyfunc_truthy(named))? (Math.max(14, widest)) : (14);
    stub203_seq = panel["x"]["ticks"];
    if ((typeof stub203_seq === "object") && (!Array.isArray(stub203_seq))) { stub203_seq = Object.keys(stub203_seq);}
    for (stub204_itr = 0; stub204_itr < stub203_seq.length; stub204_itr += 1) {
        tick = stub203_seq[stub204_itr];
        over = _pyfunc_op_mult((1 - place(panel["x"], tick["at"])), ((width - left) - margin));
        margin = Math.max(margin, ((text_width(tick["text"], SMALL) / 2) - over));
    }
    return ({left: left, right: width - margin, top: 44, bottom: 44 + (((width >= 480))? (240) : (210)), named: named});
};

draw_axes = function (panel, area) {
    var body, bottom, i, left, middle, right, stride, stub205_, stub206_seq, stub207_itr, tick, ticks, x, y;
    body = [];
    stub205_ = [area["left"], area["right"], area["bottom"]];
    left = stub205_[0];right = stub205_[1];bottom = stub205_[2];
    stub206_seq = panel["y"]["ticks"];
    if ((typeof stub206_seq === "object") && (!Array.isArray(stub206_seq))) { stub206_seq = Object.keys(stub206_seq);}
    for (stub207_itr = 0; stub207_itr < stub206_seq.length; stub207_itr += 1) {
        tick = stub206_seq[stub207_itr];
        y = at_y(panel, area, tick["at"]);
        _pymeth_append.call(body, segment(left, y, right, y, "grid"));
        _pymeth_append.call(body, (words_at(left - 6, y + 4, tick["text"], paint("muted"), "end")));
    }
    ticks = panel["x"]["ticks"];
    stride = tick_stride(panel, area);
    for (i = 0; i < ticks.length; i += 1) {
        x = at_x(panel, area, ticks[i]["at"]);
        _pymeth_append.call(body, segment(x, bottom, x, bottom + 4, "muted"));
        if ((_pyfunc_op_equals((i % stride), 0))) {
            _pymeth_append.call(body, (words_at(x, bottom + 18, ticks[i]["text"], paint("muted"), "middle")));
        }
    }
    _pymeth_append.call(body, segment(left, bottom, right, bottom, "muted"));
    _pymeth_append.call(body, segment(left, area["top"], left, bottom, "muted"));
    middle = _pyfunc_op_add(left, right) / 2;
    _pymeth_append.call(body, (words_at(middle, bottom + 35, panel["x"]["label"], paint("muted"), "middle")));
    return _pymeth_join.call("", body);
};

tick_stride = function (panel, area) {
    var fits, gap, i, stride, ticks, words;
    ticks = panel["x"]["ticks"];
    stride = 1;
    while (stride < ticks.length) {
        fits = true;
        for (i = stride; i < ticks.length; i += stride) {
            gap = at_x(panel, area, ticks[i]["at"]) - at_x(panel, area, ticks[i - stride]["at"]);
            words = _pyfunc_op_add((ticks[i]["text"]), (ticks[i - stride]["text"]));
            fits = _pyfunc_truthy(fits) && ((((text_width(words, SMALL) / 2) + 5) <= gap));
        }
        if (_pyfunc_truthy(fits)) {
            return stride;
        }
        stride += 1;
    }
    return stride;
};

draw_line = function (panel, line, area) {
    var dash, ink, last, letter, point, steps, stub208_, stub209_seq, stub210_itr, x, y;
    steps = [];
    stub209_seq = line["points"];
    if ((typeof stub209_seq === "object") && (!Array.isArray(stub209_seq))) { stub209_seq = Object.keys(stub209_seq);}
    for (stub210_itr = 0; stub210_itr < stub209_seq.length; stub210_itr += 1) {
        point = stub209_seq[stub210_itr];
        stub208_ = [at_x(panel, area, point[0]), at_y(panel, area, point[1])];
        x = stub208_[0];y = stub208_[1];
        y = Math.min((Math.max(y, (-5000))), 5000);
        letter = ((steps.length == 0))? ("M") : ("L");
        _pymeth_append.call(steps, (_pymeth_join.call("", [letter, px(x), " ", px(y)])));
    }
    dash = (_pyfunc_truthy(line["dashed"]))? (" stroke-dasharray=\"6 4\"") : ("");
    ink = _pymeth_join.call("", (["fill=\"none\" stroke=\"", paint(line["role"]), "\" stroke-width=\"2.2\" stroke-linejoin=\"round\""]));
    last = (((line["points"].length) > 0))? (line["points"][line["points"].length -1][1]) : (0);
    return _pymeth_join.call("", (["<path d=\"", _pymeth_join.call("", steps), "\" ", ink, dash, data_of(line["label"], last), "/>"]));
};

LINE = 15;
at_x = function (panel, area, value) {
    return _pyfunc_op_add(area["left"], (_pyfunc_op_mult(place(panel["x"], value), (area["right"] - area["left"]))));
};

at_y = function (panel, area, value) {
    return area["bottom"] - (_pyfunc_op_mult(place(panel["y"], value), (area["bottom"] - area["top"])));
};

spread = function (wanted, top, bottom) {
    var best, ceiling, floor, heights, i, k, order, stub211_seq, stub212_itr;
    order = [];
    while (order.length < wanted.length) {
        best = -1;
        for (i = 0; i < wanted.length; i += 1) {
            if ((((!_pyfunc_op_contains(i, order))) && (((best < 0) || (wanted[i] < wanted[best]))))) {
                best = i;
            }
        }
        _pymeth_append.call(order, best);
    }
    heights = _pyfunc_op_add(wanted, []);
    floor = top;
    stub211_seq = order;
    if ((typeof stub211_seq === "object") && (!Array.isArray(stub211_seq))) { stub211_seq = Object.keys(stub211_seq);}
    for (stub212_itr = 0; stub212_itr < stub211_seq.length; stub212_itr += 1) {
        i = stub211_seq[stub212_itr];
        heights[i] = Math.max(heights[i], floor);
        floor = _pyfunc_op_add(heights[i], LINE);
    }
    ceiling = bottom;
    for (k = 0; k < order.length; k += 1) {
        i = order[(order.length - 1) - k];
        heights[i] = Math.min(heights[i], ceiling);
        ceiling = heights[i] - LINE;
    }
    return heights;
};

upright = function (line) {
    return _pyfunc_op_equals((line["points"][0][0]), (line["points"][line["points"].length -1][0]));
};

end_names = function (panel, area) {
    var heights, i, line, lines, names, stub213_, stub213_i0, stub213_iter0, stub213_line, stub214_seq, stub215_itr, wanted, x, y;
    stub213_ = [];stub213_iter0 = panel["lines"];if ((typeof stub213_iter0 === "object") && (!Array.isArray(stub213_iter0))) {stub213_iter0 = Object.keys(stub213_iter0);}for (stub213_i0=0; stub213_i0<stub213_iter0.length; stub213_i0++) {stub213_line = stub213_iter0[stub213_i0];if (!(((((stub213_line["points"].length) > 0)) && ((!_pyfunc_truthy(upright(stub213_line))))))) {continue;}{stub213_.push(stub213_line);}}
    lines = stub213_;
    wanted = [];
    stub214_seq = lines;
    if ((typeof stub214_seq === "object") && (!Array.isArray(stub214_seq))) { stub214_seq = Object.keys(stub214_seq);}
    for (stub215_itr = 0; stub215_itr < stub214_seq.length; stub215_itr += 1) {
        line = stub214_seq[stub215_itr];
        y = at_y(panel, area, line["points"][line["points"].length -1][1]);
        _pymeth_append.call(wanted, (Math.min(Math.max(y, area["top"]), area["bottom"])));
    }
    heights = spread(wanted, area["top"], area["bottom"]);
    names = [];
    for (i = 0; i < lines.length; i += 1) {
        x = (Math.min((at_x(panel, area, lines[i]["points"][(lines[i]["points"]).length -1][0])), area["right"])) + 10;
        _pymeth_append.call(names, ({x: x, y: heights[i], label: lines[i]["label"], of: lines[i]["role"]}));
    }
    return names;
};

draw_names = function (panel, area, width) {
    var body, box, colour, curves, edge, end, i, label, line, more, point, right, rim, room, spots, stub216_seq, stub217_itr, stub218_seq, stub219_itr, stub220_seq, stub221_itr, stub222_, stub222_i0, stub222_iter0, stub222_line, stub223_seq, stub224_itr, stub225_, taken, tick, where, x, y;
    body = [];
    taken = [];
    stub216_seq = panel["y"]["ticks"];
    if ((typeof stub216_seq === "object") && (!Array.isArray(stub216_seq))) { stub216_seq = Object.keys(stub216_seq);}
    for (stub217_itr = 0; stub217_itr < stub216_seq.length; stub217_itr += 1) {
        tick = stub216_seq[stub217_itr];
        y = at_y(panel, area, tick["at"]);
        room = text_width(tick["text"], SMALL);
        _pymeth_append.call(taken, ([(area["left"] - 6) - room, y - 7, area["left"] - 6, y + 7]));
    }
    if (_pyfunc_truthy(area["named"])) {
        stub218_seq = end_names(panel, area);
        if ((typeof stub218_seq === "object") && (!Array.isArray(stub218_seq))) { stub218_seq = Object.keys(stub218_seq);}
        for (stub219_itr = 0; stub219_itr < stub218_seq.length; stub219_itr += 1) {
            end = stub218_seq[stub219_itr];
            colour = paint_text(end["of"]);
            _pymeth_append.call(body, words_at(end["x"], end["y"] + 4, end["label"], colour));
            right = _pyfunc_op_add(end["x"], text_width(end["label"], SMALL));
            _pymeth_append.call(taken, ([end["x"], end["y"] - 7, right, end["y"] + 7]));
        }
    }
    spots = [];
    stub220_seq = panel["points"];
    if ((typeof stub220_seq === "object") && (!Array.isArray(stub220_seq))) { stub220_seq = Object.keys(stub220_seq);}
    for (stub221_itr = 0; stub221_itr < stub220_seq.length; stub221_itr += 1) {
        point = stub220_seq[stub221_itr];
        x = Math.min((Math.max(at_x(panel, area, point["x"]), area["left"])), area["right"]);
        y = Math.min((Math.max(at_y(panel, area, point["y"]), area["top"])), area["bottom"]);
        _pymeth_append.call(spots, [x, y]);
        _pymeth_append.call(taken, [x - 7, y - 7, x + 7, y + 7]);
    }
    stub222_ = [];stub222_iter0 = panel["lines"];if ((typeof stub222_iter0 === "object") && (!Array.isArray(stub222_iter0))) {stub222_iter0 = Object.keys(stub222_iter0);}for (stub222_i0=0; stub222_i0<stub222_iter0.length; stub222_i0++) {stub222_line = stub222_iter0[stub222_i0];{stub222_.push((function list_comprehension (iter0) {var res = [];var point, i0;if ((typeof iter0 === "object") && (!Array.isArray(iter0))) {iter0 = Object.keys(iter0);}for (i0=0; i0<iter0.length; i0++) {point = iter0[i0];{res.push([at_x(panel, area, point[0]), at_y(panel, area, point[1])]);}}return res;}).call(this, stub222_line["points"]));}}
    curves = stub222_;
    stub223_seq = panel["lines"];
    if ((typeof stub223_seq === "object") && (!Array.isArray(stub223_seq))) { stub223_seq = Object.keys(stub223_seq);}
    for (stub224_itr = 0; stub224_itr < stub223_seq.length; stub224_itr += 1) {
        line = stub223_seq[stub224_itr];
        if ((_pyfunc_truthy(area["named"]) && (((line["points"].length) > 0)) && (_pyfunc_truthy(upright(line))))) {
            x = at_x(panel, area, line["points"][line["points"].length -1][0]);
            y = Math.max(at_y(panel, area, line["points"][line["points"].length -1][1]), area["top"]);
            box = free_box(x, y, text_width(line["label"], SMALL), area, width, taken, curves);
            _pymeth_append.call(taken, box);
            rim = _pymeth_join.call("", [" stroke=\"", paint("card"), "\"", HALO]);
            colour = paint_text(line["role"]);
            _pymeth_append.call(body, words_at(box[0], box[3] - 4, line["label"], colour, "start", rim));
        }
    }
    for (i = 0; i < spots.length; i += 1) {
        stub225_ = [panel["points"][i], spots[i][0], spots[i][1]];
        point = stub225_[0];x = stub225_[1];y = stub225_[2];
        edge = _pymeth_join.call("", ["stroke=\"", paint("card"), "\" stroke-width=\"2\""]);
        more = _pymeth_join.call("", ([data_of(point["label"], point["y"]), " data-x=\"", exact(point["x"]), "\""]));
        where = _pymeth_join.call("", ["cx=\"", px(x), "\" cy=\"", px(y), "\" r=\"6\""]);
        _pymeth_append.call(body, (_pymeth_join.call("", (["<circle ", where, " fill=\"", paint(point["role"]), "\" ", edge, more, "/>"]))));
        label = clipped(point["label"], SMALL, _pyfunc_op_mult(width, 0.6));
        box = free_box(x, y, _pyfunc_op_mult(BOLD, text_width(label, SMALL)), area, width, taken, curves);
        _pymeth_append.call(taken, box);
        _pymeth_append.call(body, haloed(box[0], box[3] - 4, label, "start", " font-weight=\"bold\""));
    }
    return _pymeth_join.call("", body);
};

free_box = function (x, y, room, area, width, taken, curves) {
    var away, best, box, inside, left, stub226_, stub227_seq, stub228_itr, stub229_seq, stub230_itr, top, uncovered;
    best = [Math.min((Math.max(0, (x + 11))), (Math.max(0, (width - room)))), y - 8, (x + 11) + room, _pyfunc_op_add(y, LINE) - 8];
    uncovered = false;
    stub229_seq = [0, 1, -1, 1.5, -1.5, 2, -2, 3, -3, 4, -4];
    if ((typeof stub229_seq === "object") && (!Array.isArray(stub229_seq))) { stub229_seq = Object.keys(stub229_seq);}
    for (stub230_itr = 0; stub230_itr < stub229_seq.length; stub230_itr += 1) {
        away = stub229_seq[stub230_itr];
        stub227_seq = [x + 11, (x - 11) - room, x + 4, (x - 4) - room, x - (room / 2)];
        if ((typeof stub227_seq === "object") && (!Array.isArray(stub227_seq))) { stub227_seq = Object.keys(stub227_seq);}
        for (stub228_itr = 0; stub228_itr < stub227_seq.length; stub228_itr += 1) {
            left = stub227_seq[stub228_itr];
            top = _pyfunc_op_add((y - 8), (_pyfunc_op_mult(away, (LINE + 1))));
            box = [left, top, _pyfunc_op_add(left, room), _pyfunc_op_add(top, LINE)];
            inside = (left >= 0) && ((_pyfunc_op_add(left, room) <= width)) && ((top >= (area["top"] - 8)));
            if ((_pyfunc_truthy(inside) && ((_pyfunc_op_add(top, LINE) <= (area["bottom"] + 2))) && ((!_pyfunc_truthy(covered(box, taken)))))) {
                if ((!_pyfunc_truthy(crossed(box, curves)))) {
                    return box;
                }
                if ((!_pyfunc_truthy(uncovered))) {
                    stub226_ = [box, true];
                    best = stub226_[0];uncovered = stub226_[1];
                }
            }
        }
    }
    return best;
};

covered = function (box, taken) {
    var across, other, stub231_seq, stub232_itr;
    stub231_seq = taken;
    if ((typeof stub231_seq === "object") && (!Array.isArray(stub231_seq))) { stub231_seq = Object.keys(stub231_seq);}
    for (stub232_itr = 0; stub232_itr < stub231_seq.length; stub232_itr += 1) {
        other = stub231_seq[stub232_itr];
        across = (box[0] < other[2]) && (other[0] < box[2]);
        if ((_pyfunc_truthy(across) && (box[1] < other[3]) && (other[1] < box[3]))) {
            return true;
        }
    }
    return false;
};

crossed = function (box, curves) {
    var curve, i, stub233_seq, stub234_itr;
    stub233_seq = curves;
    if ((typeof stub233_seq === "object") && (!Array.isArray(stub233_seq))) { stub233_seq = Object.keys(stub233_seq);}
    for (stub234_itr = 0; stub234_itr < stub233_seq.length; stub234_itr += 1) {
        curve = stub233_seq[stub234_itr];
        for (i = 1; i < curve.length; i += 1) {
            if (_pyfunc_truthy(segment_meets(box, curve[i - 1], curve[i]))) {
                return true;
            }
        }
    }
    return false;
};

segment_meets = function (box, start, end) {
    var enter, first, high, k, last, leave, low, step, stub235_, stub236_, stub237_, stub238_;
    stub235_ = [0.0, 1.0];
    first = stub235_[0];last = stub235_[1];
    for (k = 0; k < 2; k += 1) {
        step = end[k] - start[k];
        stub236_ = [box[k] - start[k], box[k + 2] - start[k]];
        low = stub236_[0];high = stub236_[1];
        if ((_pyfunc_abs(step) < (1e-06))) {
            if (((low > 0) || (high < 0))) {
                return false;
            }
        } else {
            stub237_ = [Math.min((low / step), (high / step)), Math.max((low / step), (high / step))];
            enter = stub237_[0];leave = stub237_[1];
            stub238_ = [Math.max(first, enter), Math.min(last, leave)];
            first = stub238_[0];last = stub238_[1];
            if ((first > last)) {
                return false;
            }
        }
    }
    return true;
};

LEVELS = "0123456789";
SHARES = 20;
SHARE_LABEL = "held";
LETTER = 7.6;
SIDE = 0.16;
map_size = function (panel, width) {
    var across, down, line, n, named, side, strip, stub239_seq, stub240_itr;
    n = panel["lost"].length;
    side = 0.0;
    stub239_seq = panel["lines"];
    if ((typeof stub239_seq === "object") && (!Array.isArray(stub239_seq))) { stub239_seq = Object.keys(stub239_seq);}
    for (stub240_itr = 0; stub240_itr < stub239_seq.length; stub240_itr += 1) {
        line = stub239_seq[stub240_itr];
        side = Math.max(side, (text_width(line["label"], SMALL) + 8));
    }
    named = side <= _pyfunc_op_mult(SIDE, width);
    if ((!_pyfunc_truthy(named))) {
        side = text_width("00", SMALL) + 4;
    }
    strip = (_pyfunc_truthy(named))? (56.0) : (40.0);
    across = (((width - side) - strip) - 10) / n;
    down = Math.max(5, Math.min(7, across));
    return ({named: named, side: side, strip: strip, across: across, down: down});
};

draw_map = function (panel, width) {
    var across, below, body, cells, down, ink, left, level, lost, marked, more, n, path, rings, share, size, stub241_, stub242_, stub243_, stub244_, stub244_cell, stub244_i0, stub244_iter0, stub245_seq, stub246_itr, stub247_, stub247_i0, stub247_iter0, stub247_ring, top, what;
    size = map_size(panel, width);
    stub241_ = [panel["lost"].length, panel["lost"]];
    n = stub241_[0];lost = stub241_[1];
    stub242_ = [size["side"], 58.0];
    left = stub242_[0];top = stub242_[1];
    stub243_ = [size["across"], size["down"]];
    across = stub243_[0];down = stub243_[1];
    body = [map_frame(panel, size, top)];
    stub245_seq = ["held", "lost"];
    if ((typeof stub245_seq === "object") && (!Array.isArray(stub245_seq))) { stub245_seq = Object.keys(stub245_seq);}
    for (stub246_itr = 0; stub246_itr < stub245_seq.length; stub246_itr += 1) {
        what = stub245_seq[stub246_itr];
        for (level = 1; level < LEVELS.length; level += 1) {
            cells = map_cells(panel["levels"], lost, LEVELS[level], _pyfunc_op_equals(what, "held"));
            if ((cells.length > 0)) {
                share = _pyfunc_op_mult(0.94, level) / 9;
                stub244_ = [];stub244_iter0 = cells;if ((typeof stub244_iter0 === "object") && (!Array.isArray(stub244_iter0))) {stub244_iter0 = Object.keys(stub244_iter0);}for (stub244_i0=0; stub244_i0<stub244_iter0.length; stub244_i0++) {stub244_cell = stub244_iter0[stub244_i0];{stub244_.push(rectangle(_pyfunc_op_add(left, (_pyfunc_op_mult(across, ((stub244_cell[1] + 0.5) - (share / 2))))), _pyfunc_op_add(top, (_pyfunc_op_mult(down, ((stub244_cell[0] + 0.5) - (share / 2))))), _pyfunc_op_mult(across, share), _pyfunc_op_mult(down, share)));}}
                path = stub244_;
                more = data_of(_pymeth_join.call("", [what, ", ", level, " ninths"]), cells.length);
                _pymeth_append.call(body, (map_path(_pymeth_join.call("", path), what, more)));
            }
        }
    }
    stub247_ = [];stub247_iter0 = panel["rings"];if ((typeof stub247_iter0 === "object") && (!Array.isArray(stub247_iter0))) {stub247_iter0 = Object.keys(stub247_iter0);}for (stub247_i0=0; stub247_i0<stub247_iter0.length; stub247_i0++) {stub247_ring = stub247_iter0[stub247_i0];{stub247_.push(rectangle((_pyfunc_op_add(left, _pyfunc_op_mult(across, stub247_ring[1]))) - 1, (_pyfunc_op_add(top, _pyfunc_op_mult(down, stub247_ring[0]))) - 1, across + 2, down + 2));}}
    rings = stub247_;
    ink = _pymeth_join.call("", ["fill=\"none\" stroke=\"", paint("query"), "\" stroke-width=\"1.5\""]);
    marked = data_of(panel["ring"], rings.length);
    _pymeth_append.call(body, (_pymeth_join.call("", ["<path d=\"", _pymeth_join.call("", rings), "\" ", ink, marked, "/>"])));
    _pymeth_append.call(body, (map_shares(panel, (_pyfunc_op_add(left, _pyfunc_op_mult(across, n))) + 10, top, size)));
    below = legend_at((_pyfunc_op_add(top, _pyfunc_op_mult(down, n))) + 12, width, panel["legend"]);
    _pymeth_append.call(body, below["body"]);
    return ({body: _pymeth_join.call("", body), height: _pyfunc_op_add(((_pyfunc_op_add(top, _pyfunc_op_mult(down, n))) + 12), below["height"])});
};

map_cells = function (levels, lost, digit, held) {
    var cells, key, t;
    cells = [];
    for (t = 0; t < levels.length; t += 1) {
        for (key = 0; key < levels[t].length; key += 1) {
            if ((((_pyfunc_op_equals((levels[t][key]), digit))) && ((_pyfunc_op_equals((t < lost[key]), held))))) {
                _pymeth_append.call(cells, [t, key]);
            }
        }
    }
    return cells;
};

rectangle = function (x, y, width, height) {
    return _pymeth_join.call("", ["M", px(x), " ", px(y), "h", px(width), "v", px(height), "h-", px(width), "z"]);
};

map_path = function (path, what, more) {
    var ink;
    if (_pyfunc_op_equals(what, "held")) {
        return _pymeth_join.call("", ["<path d=\"", path, "\" fill=\"", paint("cached"), "\"", more, "/>"]);
    }
    ink = _pymeth_join.call("", ["fill=\"", paint("card"), "\" stroke=\"", paint("free"), "\" stroke-width=\"1\""]);
    return _pymeth_join.call("", ["<path d=\"", path, "\" ", ink, more, "/>"]);
};

map_frame = function (panel, size, top) {
    var across, body, bottom, down, end, ground, i, key, left, letters, line, lost, n, number, pale, stub248_, stub249_, stub250_, stub251_, stub252_, words, x, y;
    body = [];
    stub248_ = [panel["lost"].length, panel["lost"], panel["letters"]];
    n = stub248_[0];lost = stub248_[1];letters = stub248_[2];
    stub249_ = [size["side"], size["across"], size["down"]];
    left = stub249_[0];across = stub249_[1];down = stub249_[2];
    ground = [];
    for (key = 0; key < n; key += 1) {
        if ((lost[key] < n)) {
            y = _pyfunc_op_add(top, _pyfunc_op_mult(down, lost[key]));
            _pymeth_append.call(ground, (rectangle(_pyfunc_op_add(left, _pyfunc_op_mult(across, key)), y, across, _pyfunc_op_mult(down, (n - lost[key])))));
        }
    }
    if ((ground.length > 0)) {
        pale = _pymeth_join.call("", ["fill=\"", paint("grid"), "\" fill-opacity=\"0.45\""]);
        _pymeth_append.call(body, (_pymeth_join.call("", ["<path d=\"", _pymeth_join.call("", ground), "\" ", pale, "/>"])));
    }
    stub250_ = [_pyfunc_op_add(top, _pyfunc_op_mult(down, n)), _pyfunc_op_add(left, _pyfunc_op_mult(across, n))];
    bottom = stub250_[0];end = stub250_[1];
    for (i = 0; i < panel["lines"].length; i += 1) {
        stub251_ = [panel["lines"][i], i + 1];
        line = stub251_[0];number = stub251_[1];
        stub252_ = [_pyfunc_op_add(left, _pyfunc_op_mult(across, line["at"])), _pyfunc_op_add(top, _pyfunc_op_mult(down, line["at"]))];
        x = stub252_[0];y = stub252_[1];
        _pymeth_append.call(body, segment(x, y, x, bottom, "grid"));
        _pymeth_append.call(body, segment(left, y, x, y, "grid"));
        words = (_pyfunc_truthy(size["named"]))? (line["label"]) : (_pymeth_join.call("", [number]));
        _pymeth_append.call(body, (words_at(left - 6, y + 10, words, paint("muted"), "end")));
        if ((across < LETTER)) {
            _pymeth_append.call(body, (words_at(x + 1, top - 5, _pymeth_join.call("", [number]), paint("muted"))));
        }
    }
    _pymeth_append.call(body, segment(left, bottom, end, bottom, "muted"));
    _pymeth_append.call(body, segment(left, top, left, bottom, "muted"));
    if ((across >= LETTER)) {
        _pymeth_append.call(body, map_letters(letters, lost, left, across, top - 5));
    }
    words = (_pyfunc_truthy(size["named"]))? ("keys, in the order of the text") : ("keys");
    _pymeth_append.call(body, (words_at(left, top - 21, words, paint("muted"))));
    return _pymeth_join.call("", body);
};

map_letters = function (letters, lost, left, across, y) {
    var colour, dropped, font, key, last, places, run, runs, safe;
    runs = [];
    places = [];
    run = "";
    for (key = 0; key < letters.length; key += 1) {
        run = _pyfunc_op_add(run, letters[key]);
        _pymeth_append.call(places, (px(_pyfunc_op_add(left, (_pyfunc_op_mult(across, (key + 0.5)))))));
        dropped = lost[key] < letters.length;
        last = _pyfunc_op_equals(key, (letters.length - 1));
        if ((_pyfunc_truthy(last) || (!_pyfunc_op_equals((lost[key + 1] < letters.length), dropped)))) {
            colour = (_pyfunc_truthy(dropped))? (paint_text("free")) : (paint("ink"));
            safe = _pymeth_replace.call(_pymeth_replace.call(run, "&", "&amp;"), "<", "&lt;");
            _pymeth_append.call(runs, (_pymeth_join.call("", ["<tspan x=\"", _pymeth_join.call(" ", places), "\" fill=\"", colour, "\">", safe, "</tspan>"])));
            run = "";
            places = [];
        }
    }
    font = "font-family=\"ui-monospace, Menlo, Consolas, monospace\" text-anchor=\"middle\"";
    return _pymeth_join.call("", ["<text y=\"", px(y), "\" ", font, " fill=\"", paint("ink"), "\">", _pymeth_join.call("", runs), "</text>"]);
};

map_shares = function (panel, x, top, size) {
    var body, down, length, long, more, n, path, share, stub253_, stub254_, t, total, words;
    body = [];
    stub253_ = [panel["shares"].length, 0.0];
    n = stub253_[0];total = stub253_[1];
    stub254_ = [size["down"], size["strip"] - 4];
    down = stub254_[0];long = stub254_[1];
    path = [];
    for (t = 0; t < n; t += 1) {
        share = panel["shares"][t];
        total = _pyfunc_op_add(total, share);
        if ((share > 0)) {
            length = _pyfunc_op_mult(long, share) / SHARES;
            _pymeth_append.call(path, (rectangle(x, _pyfunc_op_add(top, (_pyfunc_op_mult(down, (t + 0.25)))), length, _pyfunc_op_mult(down, 0.5))));
        }
    }
    _pymeth_append.call(body, (segment(_pyfunc_op_add(x, long), top, _pyfunc_op_add(x, long), _pyfunc_op_add(top, _pyfunc_op_mult(down, n)), "grid")));
    more = data_of(SHARE_LABEL, total);
    _pymeth_append.call(body, (_pymeth_join.call("", ["<path d=\"", _pymeth_join.call("", path), "\" fill=\"", paint("cached"), "\"", more, "/>"])));
    _pymeth_append.call(body, (segment(x, top, x, _pyfunc_op_add(top, _pyfunc_op_mult(down, n)), "muted")));
    words = (_pyfunc_truthy(size["named"]))? ("share held") : ("held");
    _pymeth_append.call(body, (words_at(_pyfunc_op_add(x, long), top - 21, words, paint("muted"), "end")));
    _pymeth_append.call(body, (words_at(_pyfunc_op_add(x, long), top - 5, "100 %", paint("muted"), "end")));
    return _pymeth_join.call("", body);
};

GAP = 20;
LEADING = 17;
draw = function (scene, width) {
    var body, bold, card, drawn, font, height, line, lines, panel, root, size, stub255_seq, stub256_itr, stub257_seq, stub258_itr, y;
    width = (width === undefined) ? 720: width;
    body = [];
    y = 4.0;
    stub257_seq = scene["panels"];
    if ((typeof stub257_seq === "object") && (!Array.isArray(stub257_seq))) { stub257_seq = Object.keys(stub257_seq);}
    for (stub258_itr = 0; stub258_itr < stub257_seq.length; stub258_itr += 1) {
        panel = stub257_seq[stub258_itr];
        if (_pyfunc_op_equals(panel["kind"], "bars")) {
            drawn = draw_bars(panel, width);
        } else if (_pyfunc_op_equals(panel["kind"], "curves")) {
            drawn = draw_curves(panel, width);
        } else if (_pyfunc_op_equals(panel["kind"], "map")) {
            drawn = draw_map(panel, width);
        } else if (_pyfunc_op_equals(panel["kind"], "table")) {
            drawn = draw_table(panel, width);
        } else {
            drawn = draw_cells(panel, width);
        }
        lines = wrapped(panel["label"], _pyfunc_op_mult(TITLE, BOLD), width);
        bold = _pymeth_join.call("", [" font-size=\"", TITLE, "\" font-weight=\"bold\""]);
        stub255_seq = lines;
        if ((typeof stub255_seq === "object") && (!Array.isArray(stub255_seq))) { stub255_seq = Object.keys(stub255_seq);}
        for (stub256_itr = 0; stub256_itr < stub255_seq.length; stub256_itr += 1) {
            line = stub255_seq[stub256_itr];
            _pymeth_append.call(body, (words_at(0, y + 13, line, paint("ink"), "start", bold)));
            y = _pyfunc_op_add(y, LEADING);
        }
        y = y - LEADING;
        _pymeth_append.call(body, (_pymeth_join.call("", (["<g transform=\"translate(0 ", px(y), ")\">", drawn["body"], "</g>"]))));
        y = _pyfunc_op_add(_pyfunc_op_add(y, drawn["height"]), GAP);
    }
    height = px((y - GAP) + 4);
    size = _pymeth_join.call("", ["viewBox=\"0 0 ", px(width), " ", height, "\" width=\"", px(width), "\" height=\"", height, "\""]);
    font = _pymeth_join.call("", ["font-family=\"system-ui, sans-serif\" font-size=\"", SMALL, "\""]);
    card = _pymeth_join.call("", ["<rect width=\"", px(width), "\" height=\"", height, "\" fill=\"", paint("card"), "\"/>"]);
    root = _pymeth_join.call("", ["<svg xmlns=\"http://www.w3.org/2000/svg\" ", size, " ", font, ">"]);
    return _pymeth_join.call("", [root, card, _pymeth_join.call("", body), "</svg>"]);
};

window.kvExplorers = {scenes: {growth: growth_scene, latent: latent_scene, memory: memory_scene, padding: padding_scene, roofline: roofline_scene, sampling: sampling_scene, speculation: speculation_scene}, draw: draw, tables: {
"codecs": {
"bfloat16": {
"bits": 16,
"group": 0,
"name": "bfloat16",
"residual": 0,
"scale_bits": 0,
"title": "bfloat16"
},
"fp8": {
"bits": 8,
"group": 0,
"name": "fp8",
"residual": 0,
"scale_bits": 0,
"title": "fp8"
},
"int2": {
"bits": 2,
"group": 32,
"name": "int2",
"residual": 128,
"scale_bits": 32,
"title": "int2, groups of 32"
},
"int4": {
"bits": 4,
"group": 32,
"name": "int4",
"residual": 128,
"scale_bits": 32,
"title": "int4, groups of 32"
},
"int8": {
"bits": 8,
"group": 0,
"name": "int8",
"residual": 0,
"scale_bits": 32,
"title": "int8, a scale for each vector"
}
},
"gpus": {
"a100-40-sxm": {
"bandwidth": 1555000000000,
"bf16": 312000000000000,
"fp8": 0,
"memory": 40000000000,
"name": "a100-40-sxm",
"title": "A100 40 SXM",
"unconfirmed": [
"usable"
],
"usable": 42949672960
},
"a100-80-sxm": {
"bandwidth": 2039000000000,
"bf16": 312000000000000,
"fp8": 0,
"memory": 80000000000,
"name": "a100-80-sxm",
"title": "A100 80 SXM",
"unconfirmed": [
"usable"
],
"usable": 85899345920
},
"b200-sxm": {
"bandwidth": 8000000000000,
"bf16": 2250000000000000,
"fp8": 4500000000000000,
"memory": 180000000000,
"name": "b200-sxm",
"title": "B200 SXM",
"unconfirmed": [],
"usable": 192265846784
},
"b300-sxm": {
"bandwidth": 8000000000000,
"bf16": 2250000000000000,
"fp8": 4500000000000000,
"memory": 288000000000,
"name": "b300-sxm",
"title": "B300 SXM",
"unconfirmed": [],
"usable": 288400343040
},
"h100-nvl": {
"bandwidth": 3900000000000,
"bf16": 835000000000000,
"fp8": 1671000000000000,
"memory": 94000000000,
"name": "h100-nvl",
"title": "H100 NVL",
"unconfirmed": [
"bf16"
],
"usable": 100485038080
},
"h100-sxm": {
"bandwidth": 3350000000000,
"bf16": 989000000000000,
"fp8": 1979000000000000,
"memory": 80000000000,
"name": "h100-sxm",
"title": "H100 SXM",
"unconfirmed": [],
"usable": 85520809984
},
"h200-sxm": {
"bandwidth": 4800000000000,
"bf16": 989000000000000,
"fp8": 1979000000000000,
"memory": 141000000000,
"name": "h200-sxm",
"title": "H200 SXM",
"unconfirmed": [],
"usable": 150754820096
},
"l4": {
"bandwidth": 300000000000,
"bf16": 121000000000000,
"fp8": 242000000000000,
"memory": 24000000000,
"name": "l4",
"title": "L4",
"unconfirmed": [],
"usable": 24152899584
},
"l40s": {
"bandwidth": 864000000000,
"bf16": 362050000000000,
"fp8": 733000000000000,
"memory": 48000000000,
"name": "l40s",
"title": "L40S",
"unconfirmed": [],
"usable": 48305799168
},
"mi300x": {
"bandwidth": 5300000000000,
"bf16": 1307000000000000,
"fp8": 2615000000000000,
"memory": 192000000000,
"name": "mi300x",
"title": "MI300X",
"unconfirmed": [
"usable"
],
"usable": 206141652992
},
"rtx-4090": {
"bandwidth": 1008000000000,
"bf16": 165200000000000,
"fp8": 330300000000000,
"memory": 24000000000,
"name": "rtx-4090",
"title": "RTX 4090",
"unconfirmed": [],
"usable": 25757220864
},
"rtx-5090": {
"bandwidth": 1792000000000,
"bf16": 209500000000000,
"fp8": 419000000000000,
"memory": 32000000000,
"name": "rtx-5090",
"title": "RTX 5090",
"unconfirmed": [],
"usable": 34190917632
},
"rtx-pro-6000": {
"bandwidth": 1792000000000,
"bf16": 503800000000000,
"fp8": 1007600000000000,
"memory": 96000000000,
"name": "rtx-pro-6000",
"title": "RTX PRO 6000",
"unconfirmed": [
"bf16"
],
"usable": 102641958912
}
},
"latents": {
"deepseek-v2": {
"heads": 128,
"latent": 512,
"nope": 128,
"rope": 64,
"title": "DeepSeek-V2",
"value": 128
},
"deepseek-v2-lite": {
"heads": 16,
"latent": 512,
"nope": 128,
"rope": 64,
"title": "DeepSeek-V2-Lite",
"value": 128
},
"deepseek-v3": {
"heads": 128,
"latent": 512,
"nope": 128,
"rope": 64,
"title": "DeepSeek-V3",
"value": 128
}
},
"logit_rows": {
"comment": {
"logits": [
3.09,
2.66,
2.49,
2.43,
2.21,
2.12,
2.11,
2.05,
1.99,
1.79,
1.78,
1.73,
1.68,
1.66,
1.49,
1.45,
1.4,
1.35,
1.33,
1.31,
1.3,
1.26,
1.2,
1.16,
1.11,
1.08,
1.04,
1.04,
0.99,
0.8,
0.67,
0.66,
0.65,
0.52,
0.49,
0.47,
0.43,
0.38,
0.19,
0.08,
0.06,
0.06,
-0.03,
-0.1,
-0.13,
-0.19,
-0.22,
-0.3,
-0.35,
-0.4,
-0.41,
-0.41,
-0.47,
-0.5,
-0.53,
-0.6,
-0.64,
-0.69,
-0.71,
-0.75,
-0.82,
-0.84,
-0.88,
-0.91,
-0.93,
-0.94,
-1.11,
-1.14,
-1.16,
-1.18,
-1.38,
-1.41,
-1.47,
-1.64,
-1.66,
-1.84,
-1.85,
-1.91,
-1.92,
-1.93,
-1.93,
-1.94,
-2.28,
-2.32,
-2.37,
-2.38,
-2.43,
-2.5,
-2.69,
-2.76,
-2.79,
-2.9,
-2.98,
-3.01,
-3.74,
-4.0,
-4.23,
-8.37,
-8.63,
-9.43,
-9.53,
-9.69,
-9.72,
-9.91,
-9.93,
-10.06,
-10.09,
-10.12,
-10.12,
-10.18,
-10.25,
-10.28,
-10.3,
-10.31,
-10.31,
-10.33,
-10.34,
-10.35,
-10.36,
-10.37,
-10.4,
-10.4,
-10.41,
-10.41,
-10.42,
-10.42,
-10.43,
-10.45,
-10.46,
-10.46,
-10.47,
-10.47,
-10.48,
-10.48,
-10.48,
-10.49,
-10.5,
-10.51,
-10.52,
-10.52,
-10.52,
-10.53,
-10.53,
-10.53,
-10.54,
-10.54,
-10.54,
-10.54,
-10.54,
-10.55,
-10.55,
-10.56,
-10.56,
-10.56,
-10.56,
-10.56,
-10.56,
-10.57,
-10.58,
-10.58,
-10.58,
-10.59,
-10.59,
-10.59,
-10.61,
-10.61,
-10.62,
-10.63,
-10.63,
-10.64,
-10.64,
-10.64,
-10.64,
-10.65,
-10.65,
-10.65,
-10.67,
-10.68,
-10.68,
-10.68,
-10.68,
-10.69,
-10.69,
-10.69,
-10.69,
-10.71,
-10.71,
-10.72,
-10.72,
-10.72,
-10.73,
-10.73,
-10.73,
-10.73,
-10.74,
-10.74,
-10.74,
-10.74,
-10.75,
-10.75,
-10.76,
-10.77,
-10.77,
-10.77,
-10.77,
-10.77,
-10.78,
-10.78,
-10.79,
-10.79,
-10.79,
-10.79,
-10.8,
-10.81,
-10.82,
-10.82,
-10.82,
-10.82,
-10.83,
-10.83,
-10.84,
-10.85,
-10.85,
-10.85,
-10.86,
-10.86,
-10.87,
-10.87,
-10.88,
-10.88,
-10.89,
-10.89,
-10.9,
-10.91,
-10.91,
-10.92,
-10.92,
-10.92,
-10.93,
-10.93,
-10.94,
-10.95,
-10.95,
-10.96,
-10.97,
-10.98,
-10.98,
-10.99,
-11.03,
-11.03,
-11.05,
-11.05,
-11.12,
-11.16,
-11.21,
-11.28
],
"prompt": "# ",
"title": "a comment’s “#”",
"tokens": [
"space",
"p",
"c",
"s",
"t",
"w",
"a",
"i",
"n",
"m",
"f",
"r",
"e",
"d",
"C",
"S",
"b",
"I",
"h",
"_",
"l",
"P",
"-",
"'",
"o",
"(",
"A",
"T",
"N",
"u",
"W",
"=",
"D",
"M",
"E",
"g",
"R",
"\"",
"F",
"B",
"O",
"L",
"H",
"1",
"#",
"*",
"G",
".",
"{",
"k",
"`",
"0",
"U",
"/",
"\\",
"v",
"X",
"2",
"<",
"@",
":",
"[",
"|",
"+",
"x",
"newline",
"q",
"!",
"K",
"%",
"V",
"j",
"?",
"4",
">",
"y",
"Z",
"3",
"^",
",",
"z",
";",
"8",
"J",
"Y",
"]",
"$",
"5",
"6",
"Q",
"9",
")",
"}",
"7",
"&",
"~",
"end of text",
"byte 195",
"byte 164",
"byte 129",
"byte 128",
"byte 226",
"byte 197",
"byte 177",
"byte 178",
"byte 225",
"byte 133",
"byte 194",
"byte 130",
"byte 145",
"byte 188",
"byte 250",
"byte 186",
"byte 171",
"byte 191",
"byte 147",
"byte 181",
"byte 11",
"byte 132",
"byte 138",
"byte 190",
"byte 216",
"byte 150",
"byte 149",
"byte 248",
"byte 134",
"byte 159",
"byte 231",
"byte 234",
"byte 20",
"byte 235",
"byte 136",
"byte 199",
"byte 152",
"byte 196",
"byte 153",
"byte 228",
"byte 207",
"byte 206",
"byte 16",
"byte 180",
"byte 209",
"byte 201",
"byte 31",
"byte 170",
"byte 156",
"byte 161",
"byte 185",
"byte 135",
"byte 157",
"byte 224",
"byte 251",
"byte 187",
"byte 176",
"byte 26",
"tab",
"byte 29",
"byte 220",
"byte 148",
"byte 30",
"byte 213",
"byte 151",
"byte 140",
"byte 240",
"byte 6",
"byte 139",
"byte 205",
"byte 3",
"byte 214",
"byte 254",
"byte 255",
"byte 137",
"byte 179",
"byte 184",
"byte 167",
"byte 2",
"byte 143",
"byte 17",
"byte 169",
"byte 247",
"byte 14",
"byte 146",
"byte 162",
"byte 174",
"byte 237",
"byte 165",
"byte 198",
"byte 141",
"byte 241",
"byte 202",
"byte 172",
"byte 249",
"byte 15",
"byte 246",
"byte 208",
"byte 131",
"byte 204",
"byte 218",
"byte 211",
"byte 173",
"byte 203",
"byte 243",
"byte 244",
"byte 25",
"byte 242",
"byte 7",
"byte 163",
"byte 127",
"byte 23",
"byte 160",
"byte 210",
"byte 222",
"byte 189",
"byte 236",
"byte 8",
"byte 215",
"byte 24",
"byte 144",
"byte 21",
"byte 239",
"byte 192",
"byte 18",
"byte 155",
"byte 219",
"byte 183",
"byte 142",
"byte 200",
"byte 227",
"byte 223",
"byte 232",
"byte 217",
"byte 233",
"byte 193",
"byte 5",
"byte 12",
"byte 19",
"byte 28",
"byte 212",
"byte 168",
"byte 27",
"byte 154",
"byte 221",
"byte 166",
"byte 158",
"byte 175",
"byte 230",
"byte 22",
"byte 245",
"return",
"byte 182",
"byte 252",
"byte 1",
"byte 253",
"byte 238",
"byte 4",
"byte 229"
]
},
"range": {
"logits": [
3.89,
3.58,
2.97,
2.93,
2.81,
2.29,
1.7,
1.67,
1.46,
1.28,
1.13,
0.93,
0.93,
0.84,
0.62,
0.58,
0.49,
0.47,
0.38,
0.38,
0.36,
0.35,
0.2,
0.13,
-0.03,
-0.06,
-0.11,
-0.26,
-0.27,
-0.27,
-0.47,
-0.53,
-0.55,
-0.67,
-0.68,
-0.85,
-0.87,
-0.93,
-0.98,
-1.23,
-1.27,
-1.31,
-1.33,
-1.41,
-1.41,
-1.48,
-1.65,
-1.98,
-2.04,
-2.09,
-2.13,
-2.15,
-2.16,
-2.18,
-2.31,
-2.36,
-2.37,
-2.44,
-2.47,
-2.49,
-2.52,
-2.55,
-2.57,
-2.58,
-2.6,
-2.77,
-2.77,
-2.93,
-3.05,
-3.07,
-3.16,
-3.35,
-3.38,
-3.4,
-3.42,
-3.45,
-3.47,
-3.53,
-3.62,
-3.73,
-3.81,
-3.85,
-3.89,
-3.97,
-4.01,
-4.1,
-4.16,
-4.18,
-4.24,
-4.34,
-4.65,
-4.71,
-5.48,
-5.83,
-7.0,
-7.12,
-7.21,
-8.63,
-8.92,
-10.26,
-10.32,
-10.42,
-10.56,
-10.58,
-10.64,
-10.72,
-10.74,
-10.78,
-10.79,
-10.8,
-10.88,
-10.88,
-10.91,
-10.91,
-10.95,
-10.98,
-10.98,
-10.99,
-11.0,
-11.01,
-11.01,
-11.01,
-11.02,
-11.05,
-11.05,
-11.06,
-11.08,
-11.09,
-11.09,
-11.1,
-11.1,
-11.1,
-11.1,
-11.1,
-11.12,
-11.12,
-11.14,
-11.14,
-11.14,
-11.15,
-11.16,
-11.17,
-11.17,
-11.17,
-11.18,
-11.18,
-11.18,
-11.18,
-11.19,
-11.2,
-11.21,
-11.21,
-11.21,
-11.22,
-11.22,
-11.22,
-11.22,
-11.22,
-11.22,
-11.23,
-11.23,
-11.24,
-11.25,
-11.25,
-11.26,
-11.26,
-11.26,
-11.26,
-11.28,
-11.28,
-11.29,
-11.29,
-11.3,
-11.3,
-11.3,
-11.3,
-11.31,
-11.32,
-11.32,
-11.33,
-11.33,
-11.33,
-11.33,
-11.34,
-11.34,
-11.34,
-11.35,
-11.35,
-11.36,
-11.36,
-11.36,
-11.37,
-11.37,
-11.37,
-11.37,
-11.38,
-11.39,
-11.39,
-11.39,
-11.41,
-11.41,
-11.42,
-11.42,
-11.43,
-11.43,
-11.44,
-11.45,
-11.46,
-11.46,
-11.47,
-11.47,
-11.47,
-11.48,
-11.48,
-11.49,
-11.49,
-11.5,
-11.51,
-11.51,
-11.51,
-11.52,
-11.52,
-11.52,
-11.53,
-11.53,
-11.54,
-11.54,
-11.55,
-11.55,
-11.56,
-11.56,
-11.57,
-11.57,
-11.58,
-11.59,
-11.6,
-11.61,
-11.63,
-11.64,
-11.64,
-11.64,
-11.64,
-11.65,
-11.67,
-11.67,
-11.69,
-11.69,
-11.7,
-11.73,
-11.74,
-11.77,
-11.81,
-11.85,
-11.86,
-11.89,
-12.15
],
"prompt": "for i in range(",
"title": "“for i in range(”",
"tokens": [
"1",
")",
"0",
"2",
"3",
"s",
"l",
"4",
"5",
"f",
"'",
"6",
"i",
"n",
"r",
"9",
"8",
"\"",
"b",
"t",
"p",
"c",
"d",
"-",
"h",
"x",
"a",
"o",
"7",
"e",
"m",
"v",
"N",
"F",
"w",
"newline",
"D",
"T",
"_",
"k",
"j",
"I",
".",
"L",
"E",
"y",
"B",
"P",
"u",
"z",
"g",
"A",
"*",
"C",
"R",
"S",
"W",
"M",
"\\",
"H",
"[",
"O",
"V",
"(",
"space",
"+",
",",
"?",
"Y",
"X",
"{",
":",
"q",
"<",
"%",
"G",
"]",
"/",
"U",
"!",
"K",
"J",
">",
"&",
"=",
";",
"|",
"Z",
"}",
"Q",
"~",
"#",
"$",
"^",
"end of text",
"`",
"@",
"byte 164",
"byte 195",
"byte 197",
"byte 226",
"byte 128",
"byte 188",
"byte 229",
"byte 177",
"byte 180",
"byte 194",
"byte 196",
"byte 181",
"byte 191",
"byte 129",
"byte 135",
"byte 23",
"byte 4",
"byte 183",
"byte 159",
"byte 240",
"byte 11",
"byte 203",
"byte 144",
"byte 244",
"byte 250",
"byte 149",
"byte 158",
"byte 147",
"byte 132",
"byte 127",
"byte 179",
"byte 247",
"byte 15",
"byte 185",
"byte 178",
"byte 160",
"byte 216",
"byte 238",
"byte 218",
"byte 241",
"byte 254",
"byte 220",
"byte 157",
"byte 252",
"byte 251",
"byte 198",
"byte 236",
"byte 151",
"byte 150",
"byte 215",
"byte 154",
"byte 166",
"byte 248",
"byte 199",
"byte 207",
"byte 209",
"byte 25",
"byte 26",
"byte 19",
"byte 239",
"byte 222",
"byte 174",
"byte 138",
"byte 146",
"byte 31",
"byte 213",
"byte 249",
"byte 28",
"byte 24",
"byte 167",
"byte 8",
"byte 156",
"byte 245",
"byte 131",
"byte 189",
"byte 165",
"byte 30",
"byte 134",
"byte 211",
"byte 233",
"byte 155",
"byte 148",
"byte 161",
"byte 172",
"byte 190",
"byte 5",
"byte 153",
"byte 255",
"byte 169",
"byte 3",
"byte 143",
"byte 204",
"byte 12",
"byte 235",
"byte 228",
"byte 21",
"byte 2",
"byte 6",
"byte 227",
"byte 187",
"byte 200",
"byte 145",
"byte 193",
"byte 232",
"byte 141",
"byte 136",
"byte 137",
"byte 186",
"byte 182",
"byte 242",
"return",
"byte 170",
"byte 205",
"byte 142",
"byte 246",
"byte 243",
"byte 17",
"byte 173",
"byte 133",
"byte 217",
"byte 253",
"byte 130",
"byte 225",
"byte 16",
"byte 27",
"byte 1",
"byte 234",
"byte 208",
"byte 221",
"byte 192",
"byte 176",
"byte 29",
"byte 168",
"byte 231",
"byte 18",
"byte 22",
"byte 171",
"byte 202",
"byte 7",
"byte 223",
"byte 139",
"byte 214",
"byte 14",
"byte 210",
"byte 219",
"byte 152",
"byte 175",
"byte 230",
"byte 20",
"byte 184",
"tab",
"byte 224",
"byte 201",
"byte 140",
"byte 212",
"byte 163",
"byte 237",
"byte 162",
"byte 206"
]
},
"return": {
"logits": [
4.43,
3.41,
2.91,
2.86,
2.85,
2.68,
2.44,
2.36,
2.15,
1.92,
1.83,
1.64,
1.64,
1.57,
1.45,
1.33,
1.2,
1.18,
1.15,
1.12,
0.98,
0.95,
0.87,
0.84,
0.82,
0.81,
0.78,
0.73,
0.53,
0.4,
0.37,
0.27,
0.2,
0.17,
0.06,
0.05,
0.02,
-0.01,
-0.07,
-0.1,
-0.14,
-0.18,
-0.28,
-0.3,
-0.31,
-0.35,
-0.68,
-0.69,
-0.84,
-0.88,
-0.93,
-0.98,
-0.99,
-1.08,
-1.13,
-1.18,
-1.22,
-1.27,
-1.29,
-1.49,
-1.53,
-1.57,
-1.67,
-1.71,
-1.79,
-1.81,
-1.82,
-1.92,
-1.95,
-2.03,
-2.09,
-2.19,
-2.26,
-2.33,
-2.41,
-2.48,
-2.49,
-2.92,
-3.22,
-3.29,
-3.37,
-3.38,
-3.39,
-3.44,
-3.51,
-3.73,
-3.76,
-4.13,
-4.22,
-4.45,
-4.58,
-4.6,
-4.7,
-4.73,
-5.02,
-5.1,
-5.85,
-9.24,
-9.51,
-10.5,
-10.61,
-10.61,
-10.67,
-10.75,
-10.76,
-10.76,
-10.76,
-10.81,
-10.81,
-10.83,
-10.88,
-10.9,
-10.91,
-10.91,
-10.92,
-10.94,
-10.95,
-10.96,
-10.98,
-11.01,
-11.02,
-11.02,
-11.02,
-11.02,
-11.03,
-11.04,
-11.04,
-11.04,
-11.04,
-11.05,
-11.06,
-11.06,
-11.08,
-11.08,
-11.08,
-11.08,
-11.08,
-11.09,
-11.09,
-11.09,
-11.1,
-11.11,
-11.11,
-11.12,
-11.12,
-11.14,
-11.14,
-11.14,
-11.15,
-11.15,
-11.15,
-11.15,
-11.16,
-11.16,
-11.16,
-11.16,
-11.17,
-11.17,
-11.17,
-11.17,
-11.19,
-11.19,
-11.19,
-11.21,
-11.21,
-11.22,
-11.22,
-11.23,
-11.23,
-11.23,
-11.24,
-11.24,
-11.24,
-11.25,
-11.25,
-11.26,
-11.26,
-11.26,
-11.26,
-11.27,
-11.27,
-11.27,
-11.27,
-11.27,
-11.27,
-11.28,
-11.28,
-11.29,
-11.29,
-11.29,
-11.3,
-11.3,
-11.31,
-11.31,
-11.31,
-11.31,
-11.31,
-11.31,
-11.31,
-11.31,
-11.32,
-11.32,
-11.33,
-11.33,
-11.34,
-11.34,
-11.35,
-11.35,
-11.35,
-11.36,
-11.36,
-11.37,
-11.37,
-11.37,
-11.37,
-11.38,
-11.38,
-11.39,
-11.4,
-11.41,
-11.41,
-11.42,
-11.42,
-11.43,
-11.44,
-11.44,
-11.46,
-11.46,
-11.46,
-11.47,
-11.48,
-11.49,
-11.49,
-11.49,
-11.5,
-11.5,
-11.5,
-11.51,
-11.51,
-11.53,
-11.53,
-11.54,
-11.54,
-11.55,
-11.56,
-11.57,
-11.58,
-11.58,
-11.59,
-11.63,
-11.66,
-11.67,
-11.68,
-11.7,
-11.71,
-11.72
],
"prompt": "def add(a, b):\n    return ",
"title": "“def add(a, b): return”",
"tokens": [
"a",
"_",
"i",
"b",
"r",
"s",
"(",
"d",
"t",
"p",
"f",
"o",
"A",
"c",
"l",
"N",
"w",
"h",
"\"",
"m",
"T",
"n",
"u",
"F",
"[",
"e",
"1",
"D",
"j",
"g",
"I",
"q",
"0",
"'",
"B",
"v",
"-",
"x",
"P",
"R",
"S",
"y",
"space",
"8",
"2",
"L",
"9",
"U",
"C",
"*",
"E",
"G",
"W",
"M",
"3",
"4",
"z",
"+",
"7",
"O",
"6",
"V",
"Q",
"=",
".",
"{",
"\\",
"k",
"5",
"#",
"H",
"%",
"newline",
"@",
"Z",
"X",
"<",
"Y",
":",
"/",
"J",
">",
",",
";",
")",
"|",
"K",
"~",
"?",
"`",
"$",
"^",
"]",
"end of text",
"&",
"}",
"!",
"byte 164",
"byte 195",
"byte 130",
"byte 129",
"byte 128",
"byte 197",
"byte 190",
"byte 186",
"byte 188",
"byte 214",
"byte 138",
"byte 148",
"byte 176",
"byte 184",
"byte 178",
"byte 147",
"byte 180",
"byte 150",
"byte 206",
"byte 181",
"byte 145",
"byte 22",
"byte 149",
"byte 127",
"byte 131",
"byte 20",
"byte 225",
"byte 191",
"byte 139",
"byte 207",
"byte 194",
"byte 1",
"byte 133",
"byte 144",
"byte 160",
"byte 15",
"byte 170",
"byte 31",
"byte 217",
"byte 252",
"byte 223",
"byte 238",
"byte 196",
"byte 165",
"byte 21",
"byte 151",
"byte 152",
"byte 240",
"byte 26",
"byte 202",
"byte 250",
"byte 239",
"byte 143",
"byte 12",
"byte 166",
"byte 177",
"byte 227",
"byte 134",
"byte 245",
"byte 226",
"byte 141",
"byte 7",
"byte 231",
"byte 6",
"byte 182",
"byte 210",
"byte 243",
"byte 27",
"byte 212",
"byte 204",
"byte 174",
"byte 249",
"byte 200",
"byte 158",
"byte 137",
"byte 167",
"byte 209",
"byte 2",
"byte 213",
"byte 30",
"byte 218",
"byte 224",
"byte 242",
"byte 132",
"byte 153",
"byte 171",
"byte 241",
"byte 208",
"byte 136",
"byte 135",
"byte 253",
"byte 254",
"byte 163",
"byte 192",
"byte 29",
"byte 172",
"byte 156",
"byte 24",
"byte 23",
"byte 221",
"byte 220",
"byte 193",
"byte 155",
"byte 19",
"byte 183",
"byte 159",
"byte 146",
"byte 201",
"byte 157",
"byte 11",
"byte 255",
"byte 14",
"byte 175",
"byte 25",
"byte 235",
"byte 161",
"byte 8",
"byte 154",
"byte 162",
"byte 244",
"byte 228",
"byte 5",
"byte 199",
"byte 237",
"byte 229",
"tab",
"byte 4",
"byte 140",
"byte 248",
"byte 203",
"byte 247",
"byte 189",
"byte 236",
"byte 205",
"byte 251",
"byte 246",
"byte 219",
"byte 198",
"byte 173",
"byte 17",
"return",
"byte 179",
"byte 232",
"byte 168",
"byte 234",
"byte 185",
"byte 18",
"byte 233",
"byte 222",
"byte 216",
"byte 3",
"byte 28",
"byte 16",
"byte 187",
"byte 142",
"byte 211",
"byte 169",
"byte 215",
"byte 230"
]
}
},
"models": {
"bloom-176b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 3596615680,
"kv_heads": 112,
"layers": [
{
"chosen": 0,
"count": 70,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 112,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 28672,
"vectors": 224,
"window": 0
}
],
"max_context": 2048,
"name": "bloom-176b",
"parameters": 176247271424,
"product_weights": 172637552640,
"title": "BLOOM-176B"
},
"bloom-7b1": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 1027604480,
"kv_heads": 32,
"layers": [
{
"chosen": 0,
"count": 30,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 8192,
"vectors": 64,
"window": 0
}
],
"max_context": 2048,
"name": "bloom-7b1",
"parameters": 7069016064,
"product_weights": 6039797760,
"title": "BLOOM-7B1"
},
"deepseek-r1": {
"expert_weights": 2554331136,
"experts": 256,
"experts_per_token": 8,
"head_weights": 926679040,
"kv_heads": 1,
"layers": [
{
"chosen": 0,
"count": 61,
"every": 1,
"full_qk_dim": 192,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 128,
"qk_dim": 576,
"state": 0,
"v_dim": 512,
"values": 576,
"vectors": 1,
"window": 0
}
],
"max_context": 163840,
"name": "deepseek-r1",
"parameters": 671026419200,
"product_weights": 15263268864,
"title": "DeepSeek-R1"
},
"deepseek-v2": {
"expert_weights": 1391984640,
"experts": 160,
"experts_per_token": 6,
"head_weights": 524288000,
"kv_heads": 1,
"layers": [
{
"chosen": 0,
"count": 60,
"every": 1,
"full_qk_dim": 192,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 128,
"qk_dim": 576,
"state": 0,
"v_dim": 512,
"values": 576,
"vectors": 1,
"window": 0
}
],
"max_context": 163840,
"name": "deepseek-v2",
"parameters": 235741434880,
"product_weights": 11974574080,
"title": "DeepSeek-V2"
},
"deepseek-v2-lite": {
"expert_weights": 224919552,
"experts": 64,
"experts_per_token": 6,
"head_weights": 209715200,
"kv_heads": 1,
"layers": [
{
"chosen": 0,
"count": 27,
"every": 1,
"full_qk_dim": 192,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 16,
"qk_dim": 576,
"state": 0,
"v_dim": 512,
"values": 576,
"vectors": 1,
"window": 0
}
],
"max_context": 163840,
"name": "deepseek-v2-lite",
"parameters": 15706484224,
"product_weights": 892076032,
"title": "DeepSeek-V2-Lite"
},
"deepseek-v3": {
"expert_weights": 2554331136,
"experts": 256,
"experts_per_token": 8,
"head_weights": 926679040,
"kv_heads": 1,
"layers": [
{
"chosen": 0,
"count": 61,
"every": 1,
"full_qk_dim": 192,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 128,
"qk_dim": 576,
"state": 0,
"v_dim": 512,
"values": 576,
"vectors": 1,
"window": 0
}
],
"max_context": 163840,
"name": "deepseek-v3",
"parameters": 671026419200,
"product_weights": 15263268864,
"title": "DeepSeek-V3"
},
"deepseek-v3.2": {
"expert_weights": 2554331136,
"experts": 256,
"experts_per_token": 8,
"head_weights": 926679040,
"kv_heads": 1,
"layers": [
{
"chosen": 2048,
"count": 61,
"every": 1,
"full_qk_dim": 192,
"full_v_dim": 128,
"index": 128,
"num_qo_heads": 128,
"qk_dim": 576,
"state": 0,
"v_dim": 512,
"values": 704,
"vectors": 1,
"window": 0
}
],
"max_context": 163840,
"name": "deepseek-v3.2",
"parameters": 671877944064,
"product_weights": 16114778112,
"title": "DeepSeek-V3.2"
},
"deepseek-v4-flash": {
"expert_weights": 1082130432,
"experts": 256,
"experts_per_token": 6,
"head_weights": 529530880,
"kv_heads": 1,
"layers": [
{
"chosen": 0,
"count": 43,
"every": 1,
"full_qk_dim": 512,
"full_v_dim": 512,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 512,
"state": 0,
"v_dim": 512,
"values": 512,
"vectors": 1,
"window": 128
},
{
"chosen": 512,
"count": 21,
"every": 4,
"full_qk_dim": 512,
"full_v_dim": 512,
"index": 128,
"num_qo_heads": 64,
"qk_dim": 512,
"state": 0,
"v_dim": 512,
"values": 640,
"vectors": 1,
"window": 0
},
{
"chosen": 0,
"count": 21,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 0,
"state": 25600,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
},
{
"chosen": 0,
"count": 20,
"every": 128,
"full_qk_dim": 512,
"full_v_dim": 512,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 512,
"state": 0,
"v_dim": 512,
"values": 512,
"vectors": 1,
"window": 0
},
{
"chosen": 0,
"count": 20,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 0,
"state": 260096,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
}
],
"max_context": 1048576,
"name": "deepseek-v4-flash",
"parameters": 284332240471,
"product_weights": 6245908480,
"title": "DeepSeek-V4-Flash"
},
"deepseek-v4-pro": {
"expert_weights": 4029677568,
"experts": 384,
"experts_per_token": 6,
"head_weights": 926679040,
"kv_heads": 1,
"layers": [
{
"chosen": 0,
"count": 61,
"every": 1,
"full_qk_dim": 512,
"full_v_dim": 512,
"index": 0,
"num_qo_heads": 128,
"qk_dim": 512,
"state": 0,
"v_dim": 512,
"values": 512,
"vectors": 1,
"window": 128
},
{
"chosen": 0,
"count": 31,
"every": 128,
"full_qk_dim": 512,
"full_v_dim": 512,
"index": 0,
"num_qo_heads": 128,
"qk_dim": 512,
"state": 0,
"v_dim": 512,
"values": 512,
"vectors": 1,
"window": 0
},
{
"chosen": 0,
"count": 31,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 128,
"qk_dim": 0,
"state": 260096,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
},
{
"chosen": 1024,
"count": 30,
"every": 4,
"full_qk_dim": 512,
"full_v_dim": 512,
"index": 128,
"num_qo_heads": 128,
"qk_dim": 512,
"state": 0,
"v_dim": 512,
"values": 640,
"vectors": 1,
"window": 0
},
{
"chosen": 0,
"count": 30,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 128,
"qk_dim": 0,
"state": 25600,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
}
],
"max_context": 1048576,
"name": "deepseek-v4-pro",
"parameters": 1572997201763,
"product_weights": 23744397312,
"title": "DeepSeek-V4-Pro"
},
"devstral-small-2-24b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 671088640,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 393216,
"name": "devstral-small-2-24b",
"parameters": 23572403200,
"product_weights": 22229811200,
"title": "Devstral-Small-2-24B"
},
"devstral-small-24b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 671088640,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "devstral-small-24b",
"parameters": 23572403200,
"product_weights": 22229811200,
"title": "Devstral-Small-24B"
},
"exaone-4-1.2b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 209715200,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 30,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 1024,
"vectors": 16,
"window": 0
}
],
"max_context": 65536,
"name": "exaone-4-1.2b",
"parameters": 1279391488,
"product_weights": 1069547520,
"title": "EXAONE-4.0-1.2B"
},
"exaone-4-32b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 524288000,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 48,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 4096
},
{
"chosen": 0,
"count": 16,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "exaone-4-32b",
"parameters": 32003216384,
"product_weights": 30953963520,
"title": "EXAONE-4.0-32B"
},
"falcon-7b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 295469056,
"kv_heads": 1,
"layers": [
{
"chosen": 0,
"count": 32,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 71,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 128,
"vectors": 2,
"window": 0
}
],
"max_context": 2048,
"name": "falcon-7b",
"parameters": 6921720704,
"product_weights": 6625951744,
"title": "Falcon-7B"
},
"falcon3-10b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 402653184,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 12,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 2048,
"vectors": 8,
"window": 0
}
],
"max_context": 32768,
"name": "falcon3-10b",
"parameters": 10305653760,
"product_weights": 9500098560,
"title": "Falcon3-10B"
},
"falcon3-7b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 402653184,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 28,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 12,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 2048,
"vectors": 8,
"window": 0
}
],
"max_context": 32768,
"name": "falcon3-7b",
"parameters": 7455550464,
"product_weights": 6650068992,
"title": "Falcon3-7B"
},
"gemma-2-27b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 1179648000,
"kv_heads": 16,
"layers": [
{
"chosen": 0,
"count": 23,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 4096,
"vectors": 32,
"window": 4096
},
{
"chosen": 0,
"count": 23,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 4096,
"vectors": 32,
"window": 0
}
],
"max_context": 8192,
"name": "gemma-2-27b",
"parameters": 27227128320,
"product_weights": 26046627840,
"title": "Gemma-2-27B"
},
"gemma-2-2b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 589824000,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 13,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 8,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 2048,
"vectors": 8,
"window": 4096
},
{
"chosen": 0,
"count": 13,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 8,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 2048,
"vectors": 8,
"window": 0
}
],
"max_context": 8192,
"name": "gemma-2-2b",
"parameters": 2614341888,
"product_weights": 2024275968,
"title": "Gemma-2-2B"
},
"gemma-2-9b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 917504000,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 21,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 16,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 4096,
"vectors": 16,
"window": 4096
},
{
"chosen": 0,
"count": 21,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 16,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 4096,
"vectors": 16,
"window": 0
}
],
"max_context": 8192,
"name": "gemma-2-9b",
"parameters": 9241705984,
"product_weights": 8323596288,
"title": "Gemma-2-9B"
},
"gemma-3-12b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 1006632960,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 16,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 4096,
"vectors": 16,
"window": 1024
},
{
"chosen": 0,
"count": 8,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 16,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 4096,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "gemma-3-12b",
"parameters": 11765788416,
"product_weights": 10758389760,
"title": "Gemma-3-12B"
},
"gemma-3-1b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 301989888,
"kv_heads": 1,
"layers": [
{
"chosen": 0,
"count": 22,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 4,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 512,
"vectors": 2,
"window": 512
},
{
"chosen": 0,
"count": 4,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 4,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 512,
"vectors": 2,
"window": 0
}
],
"max_context": 32768,
"name": "gemma-3-1b",
"parameters": 999885952,
"product_weights": 697761792,
"title": "Gemma-3-1B"
},
"gemma-3-27b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 1409286144,
"kv_heads": 16,
"layers": [
{
"chosen": 0,
"count": 52,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 4096,
"vectors": 32,
"window": 1024
},
{
"chosen": 0,
"count": 10,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 4096,
"vectors": 32,
"window": 0
}
],
"max_context": 131072,
"name": "gemma-3-27b",
"parameters": 27009002240,
"product_weights": 25598361600,
"title": "Gemma-3-27B"
},
"gemma-3-4b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 671088640,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 29,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 8,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 2048,
"vectors": 8,
"window": 1024
},
{
"chosen": 0,
"count": 5,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 8,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 2048,
"vectors": 8,
"window": 0
}
],
"max_context": 131072,
"name": "gemma-3-4b",
"parameters": 3880099328,
"product_weights": 3208642560,
"title": "Gemma-3-4B"
},
"gemma-4-26b-a4b": {
"expert_weights": 178421760,
"experts": 128,
"experts_per_token": 8,
"head_weights": 738197504,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 25,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 16,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 4096,
"vectors": 16,
"window": 1024
},
{
"chosen": 0,
"count": 5,
"every": 1,
"full_qk_dim": 512,
"full_v_dim": 512,
"index": 0,
"num_qo_heads": 16,
"qk_dim": 512,
"state": 0,
"v_dim": 512,
"values": 2048,
"vectors": 4,
"window": 0
}
],
"max_context": 262144,
"name": "gemma-4-26b-a4b",
"parameters": 25233141760,
"product_weights": 1656258560,
"title": "Gemma-4-26B-A4B"
},
"gemma-4-31b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 1409286144,
"kv_heads": 16,
"layers": [
{
"chosen": 0,
"count": 50,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 8192,
"vectors": 32,
"window": 1024
},
{
"chosen": 0,
"count": 10,
"every": 1,
"full_qk_dim": 512,
"full_v_dim": 512,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 512,
"state": 0,
"v_dim": 512,
"values": 4096,
"vectors": 8,
"window": 0
}
],
"max_context": 262144,
"name": "gemma-4-31b",
"parameters": 30697345280,
"product_weights": 29286727680,
"title": "Gemma-4-31B"
},
"glm-4-32b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 931135488,
"kv_heads": 2,
"layers": [
{
"chosen": 0,
"count": 61,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 48,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 512,
"vectors": 4,
"window": 0
}
],
"max_context": 32768,
"name": "glm-4-32b",
"parameters": 32566081536,
"product_weights": 30702305280,
"title": "GLM-4-32B"
},
"glm-4-9b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 620756992,
"kv_heads": 2,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 512,
"vectors": 4,
"window": 0
}
],
"max_context": 32768,
"name": "glm-4-9b",
"parameters": 9400279040,
"product_weights": 8157921280,
"title": "GLM-4-9B"
},
"glm-4.5": {
"expert_weights": 2099773440,
"experts": 160,
"experts_per_token": 8,
"head_weights": 775946240,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 92,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 96,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "glm-4.5",
"parameters": 352797829024,
"product_weights": 15279882240,
"title": "GLM-4.5"
},
"glm-4.5-air": {
"expert_weights": 778567680,
"experts": 128,
"experts_per_token": 8,
"head_weights": 620756992,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 46,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 96,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "glm-4.5-air",
"parameters": 106852251264,
"product_weights": 5953028096,
"title": "GLM-4.5-Air"
},
"glm-4.6": {
"expert_weights": 2099773440,
"experts": 160,
"experts_per_token": 8,
"head_weights": 775946240,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 92,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 96,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 202752,
"name": "glm-4.6",
"parameters": 352797829024,
"product_weights": 15279882240,
"title": "GLM-4.6"
},
"glm-5": {
"expert_weights": 2831155200,
"experts": 256,
"experts_per_token": 8,
"head_weights": 951582720,
"kv_heads": 1,
"layers": [
{
"chosen": 2048,
"count": 78,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 128,
"num_qo_heads": 64,
"qk_dim": 576,
"state": 0,
"v_dim": 512,
"values": 704,
"vectors": 1,
"window": 0
}
],
"max_context": 202752,
"name": "glm-5",
"parameters": 743911218432,
"product_weights": 17231118336,
"title": "GLM-5"
},
"glm-5.2": {
"expert_weights": 2831155200,
"experts": 256,
"experts_per_token": 8,
"head_weights": 951582720,
"kv_heads": 1,
"layers": [
{
"chosen": 2048,
"count": 21,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 128,
"num_qo_heads": 64,
"qk_dim": 576,
"state": 0,
"v_dim": 512,
"values": 704,
"vectors": 1,
"window": 0
},
{
"chosen": 2048,
"count": 57,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 576,
"state": 0,
"v_dim": 512,
"values": 576,
"vectors": 1,
"window": 0
}
],
"max_context": 1048576,
"name": "glm-5.2",
"parameters": 743377019904,
"product_weights": 16696934400,
"title": "GLM-5.2"
},
"gpt-neox-20b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 309854208,
"kv_heads": 64,
"layers": [
{
"chosen": 0,
"count": 44,
"every": 1,
"full_qk_dim": 96,
"full_v_dim": 96,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 96,
"state": 0,
"v_dim": 96,
"values": 12288,
"vectors": 128,
"window": 0
}
],
"max_context": 2048,
"name": "gpt-neox-20b",
"parameters": 20554567680,
"product_weights": 19931332608,
"title": "GPT-NeoX-20B"
},
"gpt-oss-120b": {
"expert_weights": 895795200,
"experts": 128,
"experts_per_token": 4,
"head_weights": 579133440,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 18,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 1024,
"vectors": 16,
"window": 128
},
{
"chosen": 0,
"count": 18,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 1024,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "gpt-oss-120b",
"parameters": 116829156672,
"product_weights": 968785920,
"title": "gpt-oss-120b"
},
"gpt-oss-20b": {
"expert_weights": 597196800,
"experts": 32,
"experts_per_token": 4,
"head_weights": 579133440,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 12,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 1024,
"vectors": 16,
"window": 128
},
{
"chosen": 0,
"count": 12,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 1024,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "gpt-oss-20b",
"parameters": 20914757184,
"product_weights": 639221760,
"title": "gpt-oss-20b"
},
"gpt2": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 38597376,
"kv_heads": 12,
"layers": [
{
"chosen": 0,
"count": 12,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 12,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 1536,
"vectors": 24,
"window": 0
}
],
"max_context": 1024,
"name": "gpt2",
"parameters": 124439808,
"product_weights": 84934656,
"title": "GPT-2"
},
"gpt2-xl": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 80411200,
"kv_heads": 25,
"layers": [
{
"chosen": 0,
"count": 48,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 25,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 3200,
"vectors": 50,
"window": 0
}
],
"max_context": 1024,
"name": "gpt2-xl",
"parameters": 1557611200,
"product_weights": 1474560000,
"title": "GPT-2-XL"
},
"granite-3.3-2b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 100677632,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 1024,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "granite-3.3-2b",
"parameters": 2533539840,
"product_weights": 2432696320,
"title": "Granite-3.3-2B"
},
"granite-3.3-8b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 201355264,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "granite-3.3-8b",
"parameters": 8170864640,
"product_weights": 7969177600,
"title": "Granite-3.3-8B"
},
"granite-4-h-small": {
"expert_weights": 377487360,
"experts": 72,
"experts_per_token": 10,
"head_weights": 411041792,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 36,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 128,
"qk_dim": 0,
"state": 4244992,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
},
{
"chosen": 0,
"count": 4,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "granite-4-h-small",
"parameters": 32207337984,
"product_weights": 4616261632,
"title": "Granite-4.0-H-Small"
},
"granite-4-h-tiny": {
"expert_weights": 94371840,
"experts": 64,
"experts_per_token": 6,
"head_weights": 154140672,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 36,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 48,
"qk_dim": 0,
"state": 1592832,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
},
{
"chosen": 0,
"count": 4,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 12,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 1024,
"vectors": 8,
"window": 0
}
],
"max_context": 131072,
"name": "granite-4-h-tiny",
"parameters": 6939037248,
"product_weights": 744738816,
"title": "Granite-4.0-H-Tiny"
},
"kimi-k2": {
"expert_weights": 2642411520,
"experts": 384,
"experts_per_token": 8,
"head_weights": 1174405120,
"kv_heads": 1,
"layers": [
{
"chosen": 0,
"count": 61,
"every": 1,
"full_qk_dim": 192,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 576,
"state": 0,
"v_dim": 512,
"values": 576,
"vectors": 1,
"window": 0
}
],
"max_context": 131072,
"name": "kimi-k2",
"parameters": 1026408232448,
"product_weights": 9372368896,
"title": "Kimi-K2"
},
"kimi-k2.5": {
"expert_weights": 2642411520,
"experts": 384,
"experts_per_token": 8,
"head_weights": 1174405120,
"kv_heads": 1,
"layers": [
{
"chosen": 0,
"count": 61,
"every": 1,
"full_qk_dim": 192,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 576,
"state": 0,
"v_dim": 512,
"values": 576,
"vectors": 1,
"window": 0
}
],
"max_context": 262144,
"name": "kimi-k2.5",
"parameters": 1026408232448,
"product_weights": 9372368896,
"title": "Kimi-K2.5"
},
"llama-2-13b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 163840000,
"kv_heads": 40,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 10240,
"vectors": 80,
"window": 0
}
],
"max_context": 4096,
"name": "llama-2-13b",
"parameters": 13015864320,
"product_weights": 12687769600,
"title": "Llama-2-13B"
},
"llama-2-70b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 262144000,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 80,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 4096,
"name": "llama-2-70b",
"parameters": 68976648192,
"product_weights": 68451041280,
"title": "Llama-2-70B"
},
"llama-2-7b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 131072000,
"kv_heads": 32,
"layers": [
{
"chosen": 0,
"count": 32,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 8192,
"vectors": 64,
"window": 0
}
],
"max_context": 4096,
"name": "llama-2-7b",
"parameters": 6738415616,
"product_weights": 6476005376,
"title": "Llama-2-7B"
},
"llama-3.1-405b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 2101346304,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 126,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 128,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "llama-3.1-405b",
"parameters": 405853388800,
"product_weights": 401646551040,
"title": "Llama-3.1-405B"
},
"llama-3.1-70b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 1050673152,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 80,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "llama-3.1-70b",
"parameters": 70553706496,
"product_weights": 68451041280,
"title": "Llama-3.1-70B"
},
"llama-3.1-8b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 525336576,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 32,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "llama-3.1-8b",
"parameters": 8030261248,
"product_weights": 6979321856,
"title": "Llama-3.1-8B"
},
"llama-3.2-1b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 262668288,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 16,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 1024,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "llama-3.2-1b",
"parameters": 1235814400,
"product_weights": 973078528,
"title": "Llama-3.2-1B"
},
"llama-3.2-3b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 394002432,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 28,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 24,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "llama-3.2-3b",
"parameters": 3212749824,
"product_weights": 2818572288,
"title": "Llama-3.2-3B"
},
"llama-3.3-70b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 1050673152,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 80,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "llama-3.3-70b",
"parameters": 70553706496,
"product_weights": 68451041280,
"title": "Llama-3.3-70B"
},
"llama-4-maverick": {
"expert_weights": 3019898880,
"experts": 128,
"experts_per_token": 1,
"head_weights": 1034485760,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 36,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 8192
},
{
"chosen": 0,
"count": 12,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 1048576,
"name": "llama-4-maverick",
"parameters": 400711848960,
"product_weights": 12095324160,
"title": "Llama-4-Maverick"
},
"llama-4-scout": {
"expert_weights": 6039797760,
"experts": 16,
"experts_per_token": 1,
"head_weights": 1034485760,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 36,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 8192
},
{
"chosen": 0,
"count": 12,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 10485760,
"name": "llama-4-scout",
"parameters": 107769861120,
"product_weights": 9063628800,
"title": "Llama-4-Scout"
},
"mimo-v2-flash": {
"expert_weights": 1182793728,
"experts": 256,
"experts_per_token": 8,
"head_weights": 624951296,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 9,
"every": 1,
"full_qk_dim": 192,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 192,
"state": 0,
"v_dim": 128,
"values": 1280,
"vectors": 8,
"window": 0
},
{
"chosen": 0,
"count": 39,
"every": 1,
"full_qk_dim": 192,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 192,
"state": 0,
"v_dim": 128,
"values": 2560,
"vectors": 16,
"window": 128
}
],
"max_context": 262144,
"name": "mimo-v2-flash",
"parameters": 308778780864,
"product_weights": 4733272064,
"title": "MiMo-V2-Flash"
},
"minimax-m2": {
"expert_weights": 877658112,
"experts": 256,
"experts_per_token": 8,
"head_weights": 614596608,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 62,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 48,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 196608,
"name": "minimax-m2",
"parameters": 228689764864,
"product_weights": 2779250688,
"title": "MiniMax-M2"
},
"minimax-m3": {
"expert_weights": 3227516928,
"experts": 128,
"experts_per_token": 4,
"head_weights": 1229193216,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 3,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 1024,
"vectors": 8,
"window": 0
},
{
"chosen": 2048,
"count": 57,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 128,
"num_qo_heads": 64,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 1152,
"vectors": 8,
"window": 0
}
],
"max_context": 1048576,
"name": "minimax-m3",
"parameters": 426174572928,
"product_weights": 10593239040,
"title": "MiniMax-M3"
},
"ministral-3-14b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 671088640,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 262144,
"name": "ministral-3-14b",
"parameters": 13506073600,
"product_weights": 12163481600,
"title": "Ministral-3-14B"
},
"ministral-3-3b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 402653184,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 26,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 262144,
"name": "ministral-3-3b",
"parameters": 3429006336,
"product_weights": 3026190336,
"title": "Ministral-3-3B"
},
"ministral-3-8b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 536870912,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 34,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 262144,
"name": "ministral-3-8b",
"parameters": 8489553920,
"product_weights": 7415529472,
"title": "Ministral-3-8B"
},
"ministral-8b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 536870912,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 36,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 32768
}
],
"max_context": 32768,
"name": "ministral-8b",
"parameters": 8019808256,
"product_weights": 6945767424,
"title": "Ministral-8B"
},
"mistral-7b-v0.1": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 131072000,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 32,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 4096
}
],
"max_context": 32768,
"name": "mistral-7b-v0.1",
"parameters": 7241732096,
"product_weights": 6979321856,
"title": "Mistral-7B v0.1"
},
"mistral-7b-v0.3": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 134217728,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 32,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 32768,
"name": "mistral-7b-v0.3",
"parameters": 7248023552,
"product_weights": 6979321856,
"title": "Mistral-7B v0.3"
},
"mistral-large-123b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 402653184,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 88,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 96,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "mistral-large-123b",
"parameters": 122610069504,
"product_weights": 121802588160,
"title": "Mistral-Large-123B"
},
"mistral-nemo-12b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 671088640,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 128000,
"name": "mistral-nemo-12b",
"parameters": 12247782400,
"product_weights": 10905190400,
"title": "Mistral-Nemo-12B"
},
"mistral-small-24b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 671088640,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 32768,
"name": "mistral-small-24b",
"parameters": 23572403200,
"product_weights": 22229811200,
"title": "Mistral-Small-24B"
},
"mistral-small-3.2-24b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 671088640,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "mistral-small-3.2-24b",
"parameters": 23572403200,
"product_weights": 22229811200,
"title": "Mistral-Small-3.2-24B"
},
"mixtral-8x22b": {
"expert_weights": 16911433728,
"experts": 8,
"experts_per_token": 2,
"head_weights": 196608000,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 56,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 48,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 65536,
"name": "mixtral-8x22b",
"parameters": 140620634112,
"product_weights": 4935254016,
"title": "Mixtral-8x22B"
},
"mixtral-8x7b": {
"expert_weights": 5637144576,
"experts": 8,
"experts_per_token": 2,
"head_weights": 131072000,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 32,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 32768,
"name": "mixtral-8x7b",
"parameters": 46702792704,
"product_weights": 1343225856,
"title": "Mixtral-8x7B"
},
"nemotron-3-nano-30b-a3b": {
"expert_weights": 229490688,
"experts": 128,
"experts_per_token": 6,
"head_weights": 352321536,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 23,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 0,
"state": 2134016,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
},
{
"chosen": 0,
"count": 6,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 512,
"vectors": 4,
"window": 0
}
],
"max_context": 262144,
"name": "nemotron-3-nano-30b-a3b",
"parameters": 31577940288,
"product_weights": 1498103808,
"title": "Nemotron-3-Nano-30B-A3B"
},
"nemotron-3-super-120b-a12b": {
"expert_weights": 220200960,
"experts": 512,
"experts_per_token": 22,
"head_weights": 536870912,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 128,
"qk_dim": 0,
"state": 4255744,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
},
{
"chosen": 0,
"count": 8,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 512,
"vectors": 4,
"window": 0
}
],
"max_context": 262144,
"name": "nemotron-3-super-120b-a12b",
"parameters": 120668707840,
"product_weights": 6850936832,
"title": "Nemotron-3-Super-120B-A12B"
},
"nemotron-3-ultra-550b-a55b": {
"expert_weights": 1006632960,
"experts": 512,
"experts_per_token": 22,
"head_weights": 1073741824,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 48,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 256,
"qk_dim": 0,
"state": 8499200,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
},
{
"chosen": 0,
"count": 12,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 512,
"vectors": 4,
"window": 0
}
],
"max_context": 262144,
"name": "nemotron-3-ultra-550b-a55b",
"parameters": 549308993536,
"product_weights": 31762808832,
"title": "Nemotron-3-Ultra-550B-A55B"
},
"nemotron-h-56b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 1073741824,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 54,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 256,
"qk_dim": 0,
"state": 16900096,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
},
{
"chosen": 0,
"count": 10,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 8192,
"name": "nemotron-h-56b",
"parameters": 56324350464,
"product_weights": 54173859840,
"title": "Nemotron-H-56B"
},
"nemotron-nano-9b-v2": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 587202560,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 27,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 128,
"qk_dim": 0,
"state": 5316608,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
},
{
"chosen": 0,
"count": 4,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "nemotron-nano-9b-v2",
"parameters": 8888227328,
"product_weights": 7712948224,
"title": "Nemotron-Nano-9B v2"
},
"olmo-2-13b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 513802240,
"kv_heads": 40,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 10240,
"vectors": 80,
"window": 0
}
],
"max_context": 4096,
"name": "olmo-2-13b",
"parameters": 13716198400,
"product_weights": 12687769600,
"title": "OLMo-2-13B"
},
"olmo-2-32b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 513802240,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 64,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 4096,
"name": "olmo-2-32b",
"parameters": 32234279936,
"product_weights": 31205621760,
"title": "OLMo-2-32B"
},
"olmo-2-7b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 411041792,
"kv_heads": 32,
"layers": [
{
"chosen": 0,
"count": 32,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 8192,
"vectors": 64,
"window": 0
}
],
"max_context": 4096,
"name": "olmo-2-7b",
"parameters": 7298617344,
"product_weights": 6476005376,
"title": "OLMo-2-7B"
},
"olmo-3-32b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 513423360,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 48,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 4096
},
{
"chosen": 0,
"count": 16,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 65536,
"name": "olmo-3-32b",
"parameters": 32233522176,
"product_weights": 31205621760,
"title": "OLMo-3-32B"
},
"olmo-3-7b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 410738688,
"kv_heads": 32,
"layers": [
{
"chosen": 0,
"count": 24,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 8192,
"vectors": 64,
"window": 4096
},
{
"chosen": 0,
"count": 8,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 8192,
"vectors": 64,
"window": 0
}
],
"max_context": 65536,
"name": "olmo-3-7b",
"parameters": 7298011136,
"product_weights": 6476005376,
"title": "OLMo-3-7B"
},
"opt-6.7b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 205914112,
"kv_heads": 32,
"layers": [
{
"chosen": 0,
"count": 32,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 8192,
"vectors": 64,
"window": 0
}
],
"max_context": 2048,
"name": "opt-6.7b",
"parameters": 6658473984,
"product_weights": 6442450944,
"title": "OPT-6.7B"
},
"opt-66b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 463306752,
"kv_heads": 72,
"layers": [
{
"chosen": 0,
"count": 64,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 72,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 18432,
"vectors": 144,
"window": 0
}
],
"max_context": 2048,
"name": "opt-66b",
"parameters": 65719701504,
"product_weights": 65229815808,
"title": "OPT-66B"
},
"phi-2": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 131072000,
"kv_heads": 32,
"layers": [
{
"chosen": 0,
"count": 32,
"every": 1,
"full_qk_dim": 80,
"full_v_dim": 80,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 80,
"state": 0,
"v_dim": 80,
"values": 5120,
"vectors": 64,
"window": 0
}
],
"max_context": 2048,
"name": "phi-2",
"parameters": 2779683840,
"product_weights": 2516582400,
"title": "Phi-2"
},
"phi-3-medium": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 164167680,
"kv_heads": 10,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2560,
"vectors": 20,
"window": 0
}
],
"max_context": 131072,
"name": "phi-3-medium",
"parameters": 13960238080,
"product_weights": 13631488000,
"title": "Phi-3-medium"
},
"phi-3-mini": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 98500608,
"kv_heads": 32,
"layers": [
{
"chosen": 0,
"count": 32,
"every": 1,
"full_qk_dim": 96,
"full_v_dim": 96,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 96,
"state": 0,
"v_dim": 96,
"values": 6144,
"vectors": 64,
"window": 2047
}
],
"max_context": 4096,
"name": "phi-3-mini",
"parameters": 3821079552,
"product_weights": 3623878656,
"title": "Phi-3-mini"
},
"phi-3.5-mini": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 98500608,
"kv_heads": 32,
"layers": [
{
"chosen": 0,
"count": 32,
"every": 1,
"full_qk_dim": 96,
"full_v_dim": 96,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 96,
"state": 0,
"v_dim": 96,
"values": 6144,
"vectors": 64,
"window": 0
}
],
"max_context": 131072,
"name": "phi-3.5-mini",
"parameters": 3821079552,
"product_weights": 3623878656,
"title": "Phi-3.5-mini"
},
"phi-4": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 513802240,
"kv_heads": 10,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2560,
"vectors": 20,
"window": 0
}
],
"max_context": 16384,
"name": "phi-4",
"parameters": 14659507200,
"product_weights": 13631488000,
"title": "Phi-4"
},
"phi-4-mini": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 614596608,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 32,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 24,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "phi-4-mini",
"parameters": 3836021760,
"product_weights": 3221225472,
"title": "Phi-4-mini"
},
"pythia-1.4b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 103022592,
"kv_heads": 16,
"layers": [
{
"chosen": 0,
"count": 24,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 16,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 4096,
"vectors": 32,
"window": 0
}
],
"max_context": 2048,
"name": "pythia-1.4b",
"parameters": 1414647808,
"product_weights": 1207959552,
"title": "Pythia-1.4B"
},
"pythia-12b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 259522560,
"kv_heads": 40,
"layers": [
{
"chosen": 0,
"count": 36,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 10240,
"vectors": 80,
"window": 0
}
],
"max_context": 2048,
"name": "pythia-12b",
"parameters": 11846072320,
"product_weights": 11324620800,
"title": "Pythia-12B"
},
"pythia-6.9b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 206569472,
"kv_heads": 32,
"layers": [
{
"chosen": 0,
"count": 32,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 8192,
"vectors": 64,
"window": 0
}
],
"max_context": 2048,
"name": "pythia-6.9b",
"parameters": 6857302016,
"product_weights": 6442450944,
"title": "Pythia-6.9B"
},
"qwen2.5-0.5b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 136134656,
"kv_heads": 2,
"layers": [
{
"chosen": 0,
"count": 24,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 14,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 256,
"vectors": 4,
"window": 0
}
],
"max_context": 32768,
"name": "qwen2.5-0.5b",
"parameters": 494032768,
"product_weights": 357826560,
"title": "Qwen2.5-0.5B"
},
"qwen2.5-1.5b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 233373696,
"kv_heads": 2,
"layers": [
{
"chosen": 0,
"count": 28,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 12,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 512,
"vectors": 4,
"window": 0
}
],
"max_context": 131072,
"name": "qwen2.5-1.5b",
"parameters": 1543714304,
"product_weights": 1310195712,
"title": "Qwen2.5-1.5B"
},
"qwen2.5-14b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 778567680,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 48,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "qwen2.5-14b",
"parameters": 14770033664,
"product_weights": 13212057600,
"title": "Qwen2.5-14B"
},
"qwen2.5-32b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 778567680,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 64,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "qwen2.5-32b",
"parameters": 32763876352,
"product_weights": 31205621760,
"title": "Qwen2.5-32B"
},
"qwen2.5-3b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 311164928,
"kv_heads": 2,
"layers": [
{
"chosen": 0,
"count": 36,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 16,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 512,
"vectors": 4,
"window": 0
}
],
"max_context": 32768,
"name": "qwen2.5-3b",
"parameters": 3085938688,
"product_weights": 2774532096,
"title": "Qwen2.5-3B"
},
"qwen2.5-72b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 1245708288,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 80,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 131072,
"name": "qwen2.5-72b",
"parameters": 72706203648,
"product_weights": 70212648960,
"title": "Qwen2.5-72B"
},
"qwen2.5-7b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 544997376,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 28,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 28,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 1024,
"vectors": 8,
"window": 0
}
],
"max_context": 131072,
"name": "qwen2.5-7b",
"parameters": 7615616512,
"product_weights": 6525288448,
"title": "Qwen2.5-7B"
},
"qwen3-0.6b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 155582464,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 28,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 16,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 40960,
"name": "qwen3-0.6b",
"parameters": 596049920,
"product_weights": 440401920,
"title": "Qwen3-0.6B"
},
"qwen3-1.7b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 311164928,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 28,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 16,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 40960,
"name": "qwen3-1.7b",
"parameters": 1720574976,
"product_weights": 1409286144,
"title": "Qwen3-1.7B"
},
"qwen3-14b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 777912320,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 40,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 40960,
"name": "qwen3-14b",
"parameters": 14768307200,
"product_weights": 13212057600,
"title": "Qwen3-14B"
},
"qwen3-235b-a22b": {
"expert_weights": 1774190592,
"experts": 128,
"experts_per_token": 8,
"head_weights": 622329856,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 94,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 1024,
"vectors": 8,
"window": 0
}
],
"max_context": 40960,
"name": "qwen3-235b-a22b",
"parameters": 235093634560,
"product_weights": 6751780864,
"title": "Qwen3-235B-A22B"
},
"qwen3-30b-a3b": {
"expert_weights": 226492416,
"experts": 128,
"experts_per_token": 8,
"head_weights": 311164928,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 48,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 1024,
"vectors": 8,
"window": 0
}
],
"max_context": 40960,
"name": "qwen3-30b-a3b",
"parameters": 30532122624,
"product_weights": 918552576,
"title": "Qwen3-30B-A3B"
},
"qwen3-32b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 777912320,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 64,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 40960,
"name": "qwen3-32b",
"parameters": 32762123264,
"product_weights": 31205621760,
"title": "Qwen3-32B"
},
"qwen3-4b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 388956160,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 36,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 40960,
"name": "qwen3-4b",
"parameters": 4022468096,
"product_weights": 3633315840,
"title": "Qwen3-4B"
},
"qwen3-8b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 622329856,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 36,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 40960,
"name": "qwen3-8b",
"parameters": 8190735360,
"product_weights": 6945767424,
"title": "Qwen3-8B"
},
"qwen3-coder-30b-a3b": {
"expert_weights": 226492416,
"experts": 128,
"experts_per_token": 8,
"head_weights": 311164928,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 48,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 1024,
"vectors": 8,
"window": 0
}
],
"max_context": 262144,
"name": "qwen3-coder-30b-a3b",
"parameters": 30532122624,
"product_weights": 918552576,
"title": "Qwen3-Coder-30B-A3B"
},
"qwen3-coder-480b-a35b": {
"expert_weights": 2925527040,
"experts": 160,
"experts_per_token": 8,
"head_weights": 933494784,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 62,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 96,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 262144,
"name": "qwen3-coder-480b-a35b",
"parameters": 480154875392,
"product_weights": 10202775552,
"title": "Qwen3-Coder-480B-A35B"
},
"qwen3-next-80b-a3b": {
"expert_weights": 150994944,
"experts": 512,
"experts_per_token": 10,
"head_weights": 311164928,
"kv_heads": 16,
"layers": [
{
"chosen": 0,
"count": 36,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 0,
"state": 2146304,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
},
{
"chosen": 0,
"count": 12,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 16,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 1024,
"vectors": 4,
"window": 0
}
],
"max_context": 262144,
"name": "qwen3-next-80b-a3b",
"parameters": 79674391296,
"product_weights": 1742438400,
"title": "Qwen3-Next-80B-A3B"
},
"qwen3-vl-235b-a22b": {
"expert_weights": 1774190592,
"experts": 128,
"experts_per_token": 8,
"head_weights": 622329856,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 94,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 1024,
"vectors": 8,
"window": 0
}
],
"max_context": 262144,
"name": "qwen3-vl-235b-a22b",
"parameters": 235093634560,
"product_weights": 6751780864,
"title": "Qwen3-VL-235B-A22B"
},
"qwen3-vl-30b-a3b": {
"expert_weights": 226492416,
"experts": 128,
"experts_per_token": 8,
"head_weights": 311164928,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 48,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 1024,
"vectors": 8,
"window": 0
}
],
"max_context": 262144,
"name": "qwen3-vl-30b-a3b",
"parameters": 30532122624,
"product_weights": 918552576,
"title": "Qwen3-VL-30B-A3B"
},
"qwen3-vl-32b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 777912320,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 64,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 262144,
"name": "qwen3-vl-32b",
"parameters": 32762123264,
"product_weights": 31205621760,
"title": "Qwen3-VL-32B"
},
"qwen3-vl-8b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 622329856,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 36,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 262144,
"name": "qwen3-vl-8b",
"parameters": 8190735360,
"product_weights": 6945767424,
"title": "Qwen3-VL-8B"
},
"qwen3.5-122b-a10b": {
"expert_weights": 452984832,
"experts": 256,
"experts_per_token": 8,
"head_weights": 762839040,
"kv_heads": 16,
"layers": [
{
"chosen": 0,
"count": 36,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 0,
"state": 4268032,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
},
{
"chosen": 0,
"count": 12,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 1024,
"vectors": 4,
"window": 0
}
],
"max_context": 262144,
"name": "qwen3.5-122b-a10b",
"parameters": 122111526912,
"product_weights": 4621418496,
"title": "Qwen3.5-122B-A10B"
},
"qwen3.5-27b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 1271398400,
"kv_heads": 16,
"layers": [
{
"chosen": 0,
"count": 48,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 48,
"qk_dim": 0,
"state": 3207168,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
},
{
"chosen": 0,
"count": 16,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 24,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 2048,
"vectors": 8,
"window": 0
}
],
"max_context": 262144,
"name": "qwen3.5-27b",
"parameters": 26895998464,
"product_weights": 24352522240,
"title": "Qwen3.5-27B"
},
"qwen3.5-35b-a3b": {
"expert_weights": 125829120,
"experts": 256,
"experts_per_token": 8,
"head_weights": 508559360,
"kv_heads": 16,
"layers": [
{
"chosen": 0,
"count": 30,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 0,
"state": 2146304,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
},
{
"chosen": 0,
"count": 10,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 16,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 1024,
"vectors": 4,
"window": 0
}
],
"max_context": 262144,
"name": "qwen3.5-35b-a3b",
"parameters": 34660610688,
"product_weights": 1431060480,
"title": "Qwen3.5-35B-A3B"
},
"qwen3.5-397b-a17b": {
"expert_weights": 754974720,
"experts": 512,
"experts_per_token": 10,
"head_weights": 1017118720,
"kv_heads": 16,
"layers": [
{
"chosen": 0,
"count": 45,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 64,
"qk_dim": 0,
"state": 4268032,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
},
{
"chosen": 0,
"count": 15,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 1024,
"vectors": 4,
"window": 0
}
],
"max_context": 262144,
"name": "qwen3.5-397b-a17b",
"parameters": 396346350336,
"product_weights": 7764541440,
"title": "Qwen3.5-397B-A17B"
},
"qwen3.6-27b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 1271398400,
"kv_heads": 16,
"layers": [
{
"chosen": 0,
"count": 48,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 48,
"qk_dim": 0,
"state": 3207168,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
},
{
"chosen": 0,
"count": 16,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 24,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 2048,
"vectors": 8,
"window": 0
}
],
"max_context": 262144,
"name": "qwen3.6-27b",
"parameters": 26895998464,
"product_weights": 24352522240,
"title": "Qwen3.6-27B"
},
"qwen3.6-35b-a3b": {
"expert_weights": 125829120,
"experts": 256,
"experts_per_token": 8,
"head_weights": 508559360,
"kv_heads": 16,
"layers": [
{
"chosen": 0,
"count": 30,
"every": 1,
"full_qk_dim": 0,
"full_v_dim": 0,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 0,
"state": 2146304,
"v_dim": 0,
"values": 0,
"vectors": 0,
"window": 0
},
{
"chosen": 0,
"count": 10,
"every": 1,
"full_qk_dim": 256,
"full_v_dim": 256,
"index": 0,
"num_qo_heads": 16,
"qk_dim": 256,
"state": 0,
"v_dim": 256,
"values": 1024,
"vectors": 4,
"window": 0
}
],
"max_context": 262144,
"name": "qwen3.6-35b-a3b",
"parameters": 34660610688,
"product_weights": 1431060480,
"title": "Qwen3.6-35B-A3B"
},
"reference": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 65536,
"kv_heads": 2,
"layers": [
{
"chosen": 0,
"count": 5,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 4,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 256,
"vectors": 4,
"window": 0
}
],
"max_context": 2048,
"name": "reference",
"parameters": 3508992,
"product_weights": 3440640,
"title": "The book's model"
},
"smollm2-1.7b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 100663296,
"kv_heads": 32,
"layers": [
{
"chosen": 0,
"count": 24,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 4096,
"vectors": 64,
"window": 0
}
],
"max_context": 8192,
"name": "smollm2-1.7b",
"parameters": 1711376384,
"product_weights": 1610612736,
"title": "SmolLM2-1.7B"
},
"smollm2-135m": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 28311552,
"kv_heads": 3,
"layers": [
{
"chosen": 0,
"count": 30,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 9,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 384,
"vectors": 6,
"window": 0
}
],
"max_context": 8192,
"name": "smollm2-135m",
"parameters": 134515008,
"product_weights": 106168320,
"title": "SmolLM2-135M"
},
"smollm2-360m": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 47185920,
"kv_heads": 5,
"layers": [
{
"chosen": 0,
"count": 32,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 15,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 640,
"vectors": 10,
"window": 0
}
],
"max_context": 8192,
"name": "smollm2-360m",
"parameters": 361821120,
"product_weights": 314572800,
"title": "SmolLM2-360M"
},
"smollm3-3b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 262668288,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 36,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 16,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 1024,
"vectors": 8,
"window": 0
}
],
"max_context": 65536,
"name": "smollm3-3b",
"parameters": 3075098624,
"product_weights": 2812280832,
"title": "SmolLM3-3B"
},
"stablelm-2-1.6b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 205520896,
"kv_heads": 32,
"layers": [
{
"chosen": 0,
"count": 24,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 4096,
"vectors": 64,
"window": 0
}
],
"max_context": 4096,
"name": "stablelm-2-1.6b",
"parameters": 1644515328,
"product_weights": 1233125376,
"title": "StableLM-2-1.6B"
},
"stablelm-3b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 128778240,
"kv_heads": 32,
"layers": [
{
"chosen": 0,
"count": 32,
"every": 1,
"full_qk_dim": 80,
"full_v_dim": 80,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 80,
"state": 0,
"v_dim": 80,
"values": 5120,
"vectors": 64,
"window": 0
}
],
"max_context": 4096,
"name": "stablelm-3b",
"parameters": 2795443200,
"product_weights": 2537553920,
"title": "StableLM-3B"
},
"starcoder2-15b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 301989888,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 40,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 48,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 1024,
"vectors": 8,
"window": 4096
}
],
"max_context": 16384,
"name": "starcoder2-15b",
"parameters": 15957889024,
"product_weights": 15351152640,
"title": "StarCoder2-15B"
},
"starcoder2-3b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 150994944,
"kv_heads": 2,
"layers": [
{
"chosen": 0,
"count": 30,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 24,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 512,
"vectors": 4,
"window": 4096
}
],
"max_context": 16384,
"name": "starcoder2-3b",
"parameters": 3030371328,
"product_weights": 2878341120,
"title": "StarCoder2-3B"
},
"starcoder2-7b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 226492416,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 32,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 36,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 1024,
"vectors": 8,
"window": 4096
}
],
"max_context": 16384,
"name": "starcoder2-7b",
"parameters": 7173923840,
"product_weights": 6945767424,
"title": "StarCoder2-7B"
},
"tinyllama-1.1b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 65536000,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 22,
"every": 1,
"full_qk_dim": 64,
"full_v_dim": 64,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 64,
"state": 0,
"v_dim": 64,
"values": 512,
"vectors": 8,
"window": 0
}
],
"max_context": 2048,
"name": "tinyllama-1.1b",
"parameters": 1100048384,
"product_weights": 968884224,
"title": "TinyLlama-1.1B"
},
"yi-1.5-34b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 458752000,
"kv_heads": 8,
"layers": [
{
"chosen": 0,
"count": 60,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 56,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 2048,
"vectors": 16,
"window": 0
}
],
"max_context": 4096,
"name": "yi-1.5-34b",
"parameters": 34388917248,
"product_weights": 33470545920,
"title": "Yi-1.5-34B"
},
"yi-1.5-9b": {
"expert_weights": 0,
"experts": 0,
"experts_per_token": 0,
"head_weights": 262144000,
"kv_heads": 4,
"layers": [
{
"chosen": 0,
"count": 48,
"every": 1,
"full_qk_dim": 128,
"full_v_dim": 128,
"index": 0,
"num_qo_heads": 32,
"qk_dim": 128,
"state": 0,
"v_dim": 128,
"values": 1024,
"vectors": 8,
"window": 0
}
],
"max_context": 4096,
"name": "yi-1.5-9b",
"parameters": 8829407232,
"product_weights": 8304721920,
"title": "Yi-1.5-9B"
}
}
}};
})();
