"""Behind the memory explorer: what one GPU holds, and how the cache grows with the context.

All bytes are counted in 1024s (KiB, MiB, GiB), as the tools that watch a GPU do.
"""

from typing import Any

from kvbook.explorers.scenes.panels import axis_bytes, axis_tokens, bars_panel, curves_panel
from kvbook.explorers.scenes.words import (
    bytes_exact,
    bytes_words,
    count_words,
    fixed,
    percent_words,
    times_words,
    tokens_words,
    trimmed,
)
from kvlib.costs.formulas import (
    in_blocks,
    layers_on_one,
    longest,
    reserved_bytes,
    state_bytes,
    stored_bytes,
    token_bytes,
    vector_bytes,
    visible,
    whole,
)
from kvlib.costs.reserves import group_size, layers_as_held

WEIGHT_BITS = {"bfloat16": 16, "int8": 8, "int4-g128": 4.25}


def memory_scene(settings: dict, tables: Any) -> dict:
    """settings: model, gpu, gpus, batch, context, weights, kv, block (0 or 1: single tokens),
    held (what layers with a window hold: a rule of kvlib.costs.reserves), budget (tokens that
    eviction leaves in a layer without a window, 0 for all)."""
    facts = tables["models"][settings["model"]]
    gpu = tables["gpus"][settings["gpu"]]
    codec = tables["codecs"][settings["kv"]]
    kv = memory_bytes(facts, gpu, codec, settings)
    where = f"one {gpu['title']}"
    if settings["gpus"] > 1:
        where = f"{fixed(settings['gpus'], 0)} \u00d7 {gpu['title']}"
    requests = count_words(settings["batch"], "request", "requests")
    title = f"{facts['title']} on {where}: {requests} of {tokens_words(settings['context'])}"
    return {
        "title": title,
        "summary": memory_summary(facts, gpu, settings, kv),
        "formula": memory_formula(facts, codec, settings, kv),
        "numbers": memory_numbers(facts, codec, settings, kv),
        "panels": [memory_bar(gpu, settings, kv), memory_curve(facts, codec, settings, kv)],
    }


def memory_bytes(facts: dict, gpu: dict, codec: dict, settings: dict) -> dict:
    """Every number of the scene, in bytes of one GPU if not said otherwise."""
    batch, context, block = settings["batch"], settings["context"], settings["block"]
    layers = layers_on_one(facts["layers"], settings["gpus"])
    bits = WEIGHT_BITS[settings["weights"]]
    weights = weight_bytes_on_one(facts, bits, settings["gpus"])
    stored = layers_held(layers, settings, "needed", 0)
    mine = stored_bytes(stored, codec, context)
    payload = stored_bytes(stored, payload_only(codec), context)
    reserved = layers_held(layers, settings, held_rule(layers, settings), block)
    held = batch * reserved_bytes(reserved, codec, context, block)
    needed = layers_held(layers, settings, "needed", block)
    unevicted = layers_reserved(layers, "needed", block)
    usable = gpu["usable"]
    cautious = usable * (1 - RESERVE)
    left = usable - weights - held
    whole_model = layers_held(facts["layers"], settings, "needed", 0)
    everything = reserved_bytes(layers_keeping_all(layers), codec, context, block)
    return {
        "bits": bits,
        "weights": weights,
        "stored": stored_bytes(whole_model, codec, context),  # one request, all GPUs
        "mine": mine,  # one request
        "payload": batch * (payload - state_bytes(layers)),
        "state": batch * state_bytes(layers),
        "scales": batch * (mine - payload),
        "waste": held - batch * mine,
        "held": held,
        "needed": batch * reserved_bytes(needed, codec, context, block),
        "unevicted": batch * reserved_bytes(unevicted, codec, context, block),
        "kept_all": batch * everything,
        "usable": usable,
        "left": left,  # below zero: does not fit
        "reserve": max(0, min(usable * RESERVE, left)),
        "free": max(0, left - usable * RESERVE),
        "longest_low": longest(reserved, codec, block, batch, cautious - weights),
        "longest_high": longest(reserved, codec, block, batch, usable - weights),
        "requests_low": requests_that_fit(reserved, codec, context, block, cautious - weights),
        "requests_high": requests_that_fit(reserved, codec, context, block, usable - weights),
    }


def evicts(layers: list[dict], settings: dict) -> bool:
    """Whether a budget is set, and some layer keeps all tokens, to which alone it applies."""
    for g in layers:
        if g["window"] <= 0 and g["vectors"] > 0:
            return settings["budget"] > 0  # type: ignore[no-any-return]
    return False


def tokens_kept(layers: list[dict], settings: dict) -> float:
    """Tokens of a request in a layer without a window: its context, or the budget and a new one."""
    most = settings["budget"] + 1 if evicts(layers, settings) else 0
    return visible(settings["context"], most)


def held_rule(layers: list[dict], settings: dict) -> str:
    """The rule for windows that is in force.

    A cache that evicts gives back what it does not keep, of windows too (`kvlib.costs.Holding`).
    vLLM's padding is known for layers that keep keys and values alone.
    """
    plain = True
    for g in layers:
        if g["state"] > 0 or g["every"] > 1 or g["index"] > 0:
            plain = False
    if evicts(layers, settings) or (settings["held"] == "vllm" and not plain):
        return "needed"
    return settings["held"]  # type: ignore[no-any-return]


def layers_held(layers: list[dict], settings: dict, rule: str, block: float) -> list[dict]:
    """`layers` by a rule of `kvlib.costs.reserves` and the budget, while decoding; block 0 or 1
    counts single tokens."""
    return layers_as_held(layers, rule, 1, block, [settings["budget"] for g in layers])


GIB = 1073741824
FIRST, LAST = 512, 1048576  # tokens, the ends of the slider and of the curve


def memory_bar(gpu: dict, settings: dict, kv: dict) -> dict:
    """One GPU from the first byte of weights to its last free one."""
    parts = [
        ["weights", kv["weights"] / GIB, "weights"],
        ["keys and values", kv["payload"] / GIB, "cached"],
    ]
    if kv["state"] > 0:
        parts.append(["states", kv["state"] / GIB, "query"])
    if kv["scales"] > 0:
        parts.append(["their scales", kv["scales"] / GIB, "value"])
    if kv["waste"] > 0:
        parts.append(["held, not needed", kv["waste"] / GIB, "muted"])
    if kv["reserve"] > 0:
        parts.append(["reserve", kv["reserve"] / GIB, "grid"])
    if kv["free"] > 0:
        parts.append(["free", kv["free"] / GIB, "free"])
    usable = kv["usable"] / GIB
    total = max(usable, usable - kv["left"] / GIB)
    name = gpu["title"] if settings["gpus"] == 1 else f"each {gpu['title']}"
    mark = [f"usable: {bytes_words(kv['usable'], 1024)}", usable]
    return bars_panel("What one GPU holds", "GiB", total * 1.04, [[name, parts]], [mark])


def curve_contexts(here: float) -> list[float]:
    """Where the curve is computed: at multiples of every block size, and at the slider."""
    grid = [FIRST, FIRST * 1.5]
    for octave in range(10):
        for quarter in range(4):
            grid.append(FIRST * 2**octave * (4 + quarter) / 2)
    grid.append(LAST)
    contexts: list[float] = []
    for at in grid:
        if len(contexts) > 0 and contexts[len(contexts) - 1] < here and here < at:
            contexts.append(here)
        contexts.append(at)
    return contexts


def memory_curve(facts: dict, codec: dict, settings: dict, kv: dict) -> dict:
    """Bytes of the cache against the context; windows bend the curve, the GPU ends it."""
    batch, block = settings["batch"], settings["block"]
    layers = layers_on_one(facts["layers"], settings["gpus"])
    contexts = curve_contexts(settings["context"])
    rule = held_rule(layers, settings)
    reserved = layers_held(layers, settings, rule, block)
    curve = [[c, batch * reserved_bytes(reserved, codec, c, block)] for c in contexts]
    lines = [["KV cache", "cached", curve, False]]
    high = max(curve[len(curve) - 1][1], kv["usable"])
    other, name = layers_keeping_all(layers), "no windows"
    if evicts(layers, settings):
        other, name = layers_reserved(layers, "needed", block), "no eviction"
    elif rule == "all":
        other, name = layers_reserved(layers, "needed", block), "what is needed"
    compared = [[c, batch * reserved_bytes(other, codec, c, block)] for c in contexts]
    if compared[len(compared) - 1][1] != curve[len(curve) - 1][1]:
        lines.append([name, "recomputed", compared, True])
        high = max(high, compared[len(compared) - 1][1])
    bottom, top = 16777216.0, 4398046511104.0  # 16 MiB to 4 TiB, so that the axis seldom moves
    while bottom > curve[0][1]:
        bottom = bottom / 4
    while top < high:
        top = top * 4
    room = kv["usable"] - kv["weights"]
    if room > bottom:
        ends = [[FIRST, room], [LAST, room]]
        lines.append(["GPU full", "ink", ends, True])
    limit = facts["max_context"]
    if limit > FIRST and limit < LAST:
        edge = [[limit, bottom], [limit, top]]
        lines.append(["model's limit", "muted", edge, True])
    label = "The cache against the context"
    if settings["gpus"] > 1:
        label = "The cache on each GPU against the context"
    x = axis_tokens("context in tokens (1K = 1,024)", FIRST, LAST)
    y = axis_bytes("keys and values", bottom, top)
    here = [bytes_words(kv["held"], 1024), "cached", settings["context"], kv["held"]]
    return curves_panel(label, x, y, lines, [here])


RESERVE = 0.1  # the cautious end of every interval: engines use 90 % of what a GPU offers
ENDLESS = 1099511627776  # the longest context that `longest` looks for


def memory_summary(facts: dict, gpu: dict, settings: dict, kv: dict) -> str:
    """Two to four sentences: weights against cache, whether it fits, what else to know."""
    usable = bytes_words(kv["usable"], 1024)
    place = f"the {usable} of one {gpu['title']}"
    if settings["gpus"] > 1:
        place = f"the {usable} of each {gpu['title']}"
    weights = bytes_words(kv["weights"], 1024)
    held = bytes_words(kv["held"], 1024)
    ratio = kv["held"] / kv["weights"]
    compared = times_words(ratio) if ratio >= 1 else f"{percent_words(ratio)} of"
    sentences = [f"The weights take {weights}, the keys and values {held}: {compared} the weights."]
    if kv["weights"] > kv["usable"]:
        sentences = [
            f"The weights alone take {weights}, more than {place}:"
            f" they need more GPUs or fewer bits. The keys and values would add {held}."
        ]
    elif kv["left"] < 0:
        over = bytes_words(-kv["left"], 1024)
        sentences.append(f"That is {over} more than {place}: it does not fit.")
    elif kv["free"] == 0:
        sentences.append(
            f"It fits on paper only: {bytes_words(kv['left'], 1024)} of {place} are left, less than"
            f" the {percent_words(RESERVE)} that an engine keeps for everything else."
        )
    else:
        reserve = bytes_words(kv["reserve"], 1024)
        sentences.append(
            f"Of {place}, {bytes_words(kv['free'], 1024)} stay free,"
            f" in addition to a reserve of {reserve}."
        )
    if settings["budget"] > 0:
        sentences.append(budget_words(facts["layers"], settings, kv))
    rule, windows = settings["held"], max([g["window"] for g in facts["layers"]]) > 0
    if evicts(facts["layers"], settings):
        if rule != "needed" and windows:
            sentences.append(
                "A cache that evicts frees what its windows have passed:"
                " they hold what the next query sees."
            )
    elif rule == "needed" and kv["kept_all"] > kv["held"]:
        without = bytes_words(kv["kept_all"], 1024)
        sentences.append(f"Without the windows of its layers the cache would take {without}.")
    elif kv["held"] > kv["needed"]:
        needed = bytes_words(kv["needed"], 1024)
        sentences.append(f"The tokens that the next queries see take {needed}.")
    elif rule != "needed" and not windows:
        sentences.append("The layers of this model have no windows, so they hold every token.")
    if settings["context"] > facts["max_context"]:
        sentences.append(f"The model reads at most {tokens_words(facts['max_context'])}.")
    if uneven(facts["layers"], settings["gpus"]):
        sentences.append(
            "The heads do not divide evenly: the numbers are of the GPU that holds most."
        )
    if unconfirmed(gpu, "usable"):
        sentences.append("The usable memory of this GPU is an unconfirmed figure.")
    return " ".join(sentences)


def budget_words(layers: list[dict], settings: dict, kv: dict) -> str:
    """One sentence on what a budget changes."""
    if not evicts(layers, settings):
        return "Every layer of this model has a window, so a budget changes nothing."
    if tokens_kept(layers, settings) >= settings["context"]:
        return "A request is no longer than the budget, so nothing is evicted."
    each = "each layer without a window" if max([g["window"] for g in layers]) > 0 else "each layer"
    left, without = tokens_words(settings["budget"]), bytes_words(kv["unevicted"], 1024)
    return f"Eviction leaves {left} in {each}; without it the cache would take {without}."


def uneven(layers: list[dict], gpus: float) -> bool:
    """Whether some of `gpus` devices hold more heads than others."""
    for g in layers:
        if g["num_qo_heads"] % gpus != 0:
            return True
        heads = g["vectors"] / 2
        if g["vectors"] > 1 and heads % gpus != 0 and gpus % heads != 0:
            return True
    return False


def unconfirmed(gpu: dict, name: str) -> bool:
    """Whether no public text of the vendor confirms this number of a GPU."""
    return name in gpu["unconfirmed"]


def interval_words(low: float, high: float, one: str, many: str, endless: str) -> str:
    """From the cautious to the hopeful answer: '121,101 to 137,412 tokens'; `endless` if none."""
    if high <= 0:
        return "none"
    if low >= ENDLESS:
        return endless
    if high >= ENDLESS:
        return f"{count_words(low, one, many)} or no limit"
    if low >= high:
        return count_words(high, one, many)
    return f"{fixed(low, 0)} to {count_words(high, one, many)}"


def memory_numbers(facts: dict, codec: dict, settings: dict, kv: dict) -> list[dict]:
    """The key results. Intervals run from 90 % of the memory to all of it."""
    on_one = " on each GPU" if settings["gpus"] > 1 else ""
    label = "Free" if kv["left"] >= 0 else "Missing"
    left = bytes_words(abs(kv["left"]), 1024)
    context = tokens_words(settings["context"])
    endless = "no limit: windows bound it"
    if evicts(facts["layers"], settings):
        endless = "no limit: the budget bounds it"
    tokens = interval_words(kv["longest_low"], kv["longest_high"], "token", "tokens", endless)
    low, high = kv["requests_low"], kv["requests_high"]
    return [
        {"label": "A token", "text": bytes_exact(token_bytes(facts["layers"], codec))},
        {"label": "A request", "text": bytes_words(kv["stored"], 1024)},
        {"label": f"All requests{on_one}", "text": bytes_words(kv["held"], 1024)},
        {"label": f"{label}{on_one}, reserve included", "text": left},
        {"label": "Empty in a last block", "text": empty_words(facts["layers"], settings)},
        {
            "label": f"Longest context of {count_words(settings['batch'], 'request', 'requests')}",
            "text": tokens,
        },
        {
            "label": f"Requests of {context} that fit",
            "text": interval_words(low, high, "request", "requests", endless),
        },
    ]


def empty_words(layers: list[dict], settings: dict) -> str:
    """Slots that the last block of a request holds in vain: here, and at most."""
    block, tokens = settings["block"], tokens_kept(layers, settings)
    if block <= 1:
        return "nothing, blocks of 1 token"
    here = tokens_words(in_blocks(tokens, block) - tokens)
    return f"{here} of at most {fixed(block - 1, 0)}"


def bits_words(bits: float) -> str:
    """The size of one number: '2 bytes', '1 byte', '1/2 byte'."""
    if bits < 8:
        return f"1/{fixed(8 / bits, 0)} byte"
    return "1 byte" if bits == 8 else f"{trimmed(bits / 8, 3)} bytes"


def group_name(g: dict) -> str:
    """What sets the layers of a group apart: '10 layers', '52 layers (window 1,024)'."""
    name = "1 layer" if g["count"] == 1 else f"{fixed(g['count'], 0)} layers"
    return f"{name} (window {fixed(g['window'], 0)})" if g["window"] > 0 else name


def token_line(g: dict, codec: dict) -> str:
    """Bytes of one token in all layers of a group, factor by factor."""
    if g["state"] > 0:
        total = bytes_exact(g["count"] * g["state"])
        return f"{group_name(g)} \u00d7 {bytes_exact(g['state'])} of state = {total} per request"
    plain = payload_only(codec)
    total = g["count"] * vector_bytes(g["values"], g["vectors"], plain)
    size = f"{bits_words(codec['bits'])} = {bytes_exact(total)}"
    unit = "per token" if g["every"] <= 1 else f"for every {fixed(g['every'], 0)} tokens"
    index = f" + {fixed(g['index'], 0)} index" if g["index"] > 0 else ""
    if g["vectors"] == 1:
        rope = fixed(g["qk_dim"] - g["v_dim"], 0)
        dims = f"({fixed(g['v_dim'], 0)} latent + {rope} rope{index})"
        return f"{group_name(g)} \u00d7 {dims} \u00d7 {size} {unit}"
    heads = fixed(g["vectors"] / 2, 0)
    dims = f"{heads} kv heads \u00d7 {fixed((g['values'] - g['index']) / g['vectors'], 0)}"
    if g["index"] > 0:
        return f"{group_name(g)} \u00d7 (2 \u00d7 {dims}{index}) \u00d7 {size} {unit}"
    return f"2 \u00d7 {group_name(g)} \u00d7 {dims} \u00d7 {size} {unit}"


def scale_line(layers: list[dict], codec: dict) -> str:
    """Bytes of the scales of one token, in all layers."""
    total = token_bytes(layers, codec) - token_bytes(layers, payload_only(codec))
    count = 0.0
    for g in layers:
        groups = g["values"] / codec["group"] if codec["group"] > 0 else g["vectors"]
        count += g["count"] * groups
    each = "vectors"
    if codec["group"] > 0:
        each = f"groups of {fixed(codec['group'], 0)}"
    size = bits_words(codec["scale_bits"])
    return f"+ {trimmed(count, 1)} {each} \u00d7 {size} of scale = {bytes_exact(total)} per token"


def request_line(layers: list[dict], codec: dict, context: float, stored: float) -> str:
    """Bytes of one request: tokens times bytes, for each group of layers, and the residual."""
    terms: list[str] = []
    simple = 0.0
    for g in layers:
        if g["state"] > 0:
            terms.append(bytes_exact(g["count"] * g["state"]))
            simple += g["count"] * g["state"]
            continue
        entries = visible(context, g["window"]) // g["every"]
        each = g["count"] * vector_bytes(g["values"], g["vectors"], codec)
        what = tokens_words(entries) if g["every"] <= 1 else f"{fixed(entries, 0)} entries"
        terms.append(f"{what} \u00d7 {bytes_exact(each)}")
        simple += entries * each
    text = " + ".join(terms)
    if stored > simple:
        last = tokens_words(min(context, codec["residual"]))
        text = f"{text} + {bytes_exact(stored - simple)} more for the last {last}, kept in 16 bits"
    return f"{text} = {bytes_exact(stored)} per request"


def memory_formula(facts: dict, codec: dict, settings: dict, kv: dict) -> list[str]:
    """All lines; `kv` has the bytes of the scene: stored, mine (one GPU), held, weights, bits."""
    gpus, batch, context = (settings["gpus"], settings["batch"], settings["context"])
    layers = facts["layers"]
    lines = [token_line(g, codec) for g in layers]
    if codec["scale_bits"] > 0:
        lines.append(scale_line(layers, codec))
    if len(lines) > 1:
        lines.append(f"together {bytes_exact(token_bytes(layers, codec))} per token")
    kept = tokens_kept(layers, settings)
    if kept < context:
        lines.append(eviction_line(layers, settings, kept))
    stored = layers_held(layers, settings, "needed", 0)
    lines.append(request_line(stored, codec, context, kv["stored"]))
    if gpus > 1:
        lines.append(share_line(layers, gpus, kv["mine"]))
    each = kv["mine"]
    where = "on each GPU" if gpus > 1 else "in all"
    if kv["held"] > batch * each:
        each = kv["held"] / batch
        lines.append(f"{held_words(layers, settings)}: {bytes_exact(each)} per request")
    lines.append(
        f"{fixed(batch, 0)} \u00d7 {bytes_exact(each)} = {bytes_words(kv['held'], 1024)} {where}"
    )
    weights = f"{fixed(facts['parameters'], 0)} parameters \u00d7 {trimmed(kv['bits'], 2)} bits / 8"
    if gpus > 1:
        weights = f"{weights} / {fixed(gpus, 0)} GPUs"
    lines.append(f"{weights} = {bytes_words(kv['weights'], 1024)} of weights {where}")
    return lines


def eviction_line(layers: list[dict], settings: dict, kept: float) -> str:
    """How many tokens per request a budget leaves in a layer without a window."""
    full = 0
    for g in layers:
        if g["window"] <= 0 and g["vectors"] > 0:
            full += g["count"]
    named = f"in each of {fixed(full, 0)} layers" if full > 1 else "in 1 layer"
    left = tokens_words(settings["budget"])
    return f"eviction leaves {left} {named}, and the step adds 1: {tokens_words(kept)}"


def held_words(layers: list[dict], settings: dict) -> str:
    """Why a request takes more than its tokens need."""
    block, rule = settings["block"], held_rule(layers, settings)
    context, tokens = settings["context"], tokens_kept(layers, settings)
    passed = False
    for g in layers:
        if g["window"] > 0 and g["window"] < context:
            passed = True
    if rule == "all" and passed:
        return f"if every layer holds {tokens_words(in_blocks(context, block))}"
    if rule == "vllm" and len(layers) > 1:
        size = fixed(group_size(layers), 0)
        return f"in vLLM's groups of {size} layers, in whole blocks of {tokens_words(block)}"
    if passed:
        return f"in blocks of {tokens_words(block)}, within which a window may begin"
    if tokens < context and max([g["window"] for g in layers]) > 0:
        return f"in whole blocks of {tokens_words(block)}"
    full = in_blocks(tokens, block)
    count = fixed(full / block, 0)
    return f"in whole blocks, {count} \u00d7 {fixed(block, 0)} = {tokens_words(full)}"


def share_line(layers: list[dict], gpus: float, mine: float) -> str:
    """What one of several GPUs holds of a request."""
    first = 0
    while layers[first]["vectors"] < 1 and first < len(layers) - 1:
        first += 1
    if layers[first]["vectors"] == 1:
        return f"the latent serves every head, so each GPU holds all of it: {bytes_exact(mine)}"
    heads = layers[first]["vectors"] / 2
    on_one = f"{fixed(whole(heads / gpus), 0)} on each"
    if gpus > heads:
        on_one = f"{on_one}, so that several GPUs hold the same"
    dealt = f"{fixed(heads, 0)} kv heads / {fixed(gpus, 0)} GPUs: {on_one}"
    return f"{dealt}, {bytes_exact(mine)} per request"


def layers_reserved(
    layers: list[dict[str, Any]], reserve: str, block: float
) -> list[dict[str, Any]]:
    """`layers_as_held` while decoding, nothing evicted."""
    return layers_as_held(layers, reserve, 1, block, [0 for g in layers])


def layers_keeping_all(layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`layers` as a cache that forgets nothing stores them: no window."""
    kept = layers_on_one(layers, 1)
    for g in kept:
        g["window"] = 0
    return kept


def payload_only(codec: dict[str, Any]) -> dict[str, Any]:
    """`codec` without its scales: what the stored numbers alone take."""
    return {
        "bits": codec["bits"],
        "scale_bits": 0,
        "group": codec["group"],
        "residual": codec["residual"],
    }


def weight_bytes_on_one(facts: dict[str, Any], weight_bits: float, gpus: float) -> float:
    """Bytes of weights that each of `gpus` holds: all parameters, dealt out evenly."""
    return facts["parameters"] * weight_bits / 8 / gpus


def requests_that_fit(
    layers: list[dict[str, Any]], codec: dict[str, Any], seq: float, block: float, budget: float
) -> float:
    """How many requests of `seq` tokens `budget` bytes hold."""
    return max(0, budget) // reserved_bytes(layers, codec, seq, block)
