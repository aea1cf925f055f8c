"""Behind the explorer of latent attention: operations of its two forms in one layer and one step.

The expanded form makes keys and values of all heads from every latent vector of the cache, and then
attends as usual. The absorbed form multiplies each query by the matrix of the keys and each output
by the matrix of the values, and attends to the latent vectors themselves. The sizes of a model are
`heads`, `latent` (numbers of a latent vector), `nope` and `rope` (the two parts of a head's key, of
which all heads share the second, rotated one), and `value`.

Every new token is counted with every token of the cache, even where a causal mask hides it.
"""

from typing import Any

from kvbook.explorers.scenes.growth import flops_unit
from kvbook.explorers.scenes.panels import axis_decades, axis_tokens, bars_panel, curves_panel
from kvbook.explorers.scenes.words import (
    bytes_words,
    count_words,
    fixed,
    scaled_words,
    times_words,
    tokens_short,
    tokens_words,
    trimmed,
)
from kvlib.costs.formulas import tokens_to_amortise


def latent_scene(settings: dict, tables: Any) -> dict:
    """settings: model, new, context. More new tokens than the context count as a whole prompt."""
    sizes = tables["latents"][settings["model"]]
    work = latent_work(sizes, settings)
    verdicts = {
        "absorb": "absorbing takes fewer operations",
        "expand": "expanding takes fewer operations",
        "same": "both forms take the same number of operations",
    }
    step = f"{new_words(work['fresh'])} and {fixed(work['context'], 0)} in the cache"
    if work["fresh"] == work["context"]:
        step = f"a prompt of {tokens_words(work['fresh'])} from scratch"
    return {
        "title": f"{sizes['title']}, {step}: {verdicts[work['better']]}",
        "summary": latent_summary(sizes, settings, work),
        "formula": latent_formula(sizes, work),
        "numbers": [
            {"label": "Expanded form", "text": flop_words(work["forms"]["expanded"])},
            {"label": "Absorbed form", "text": flop_words(work["forms"]["absorbed"])},
            {"label": "Expanded / absorbed", "text": ratio_words(work)},
            {"label": "Expanding saves from", "text": new_words(work["first"])},
            {"label": "Latents read", "text": bytes_words(work["latent_bytes"], 1024)},
            {"label": "The same, expanded", "text": bytes_words(work["expanded_bytes"], 1024)},
        ],
        "panels": [latent_bars(work), latent_curve(work)],
    }


def latent_forms(sizes: dict, fresh: float, context: float) -> dict:
    """The operations of both forms, for `fresh` new tokens of `context`."""
    heads, nope, rope, value = sizes["heads"], sizes["nope"], sizes["rope"], sizes["value"]
    matrices = 2 * sizes["latent"] * heads * (nope + value)  # one token through both matrices
    per_query = (
        2 * context * heads * (nope + rope + value)
    )  # one query over expanded keys and values
    shared = 2 * context * heads * (2 * sizes["latent"] + rope)  # one query over latents
    return {
        "expanding": context * matrices,
        "expanded_attention": fresh * per_query,
        "expanded": context * matrices + fresh * per_query,
        "absorbing": fresh * matrices,
        "absorbed_attention": fresh * shared,
        "absorbed": fresh * (shared + matrices),
        "each_expanded": per_query,  # what one more new token adds
        "each_absorbed": shared + matrices,
    }


def latent_work(sizes: dict, settings: dict) -> dict:
    """Every number of the scene; `ratios` are those of the curve: [new tokens, ratio]."""
    context = settings["context"]
    fresh = min(settings["new"], context)
    forms = latent_forms(sizes, fresh, context)
    better = "absorb" if forms["absorbed"] < forms["expanded"] else "expand"
    ratios: list[list[float]] = []
    for tokens in curve_tokens(min(MOST_NEW, context)):
        forms_at = latent_forms(sizes, tokens, context)
        ratios.append([tokens, forms_at["expanded"] / forms_at["absorbed"]])
    crossing = tokens_to_amortise(
        forms["each_expanded"], forms["each_absorbed"], forms["expanding"]
    )
    dims = sizes["nope"] + sizes["rope"] + sizes["value"]
    return {
        "fresh": fresh,
        "context": context,
        "forms": forms,
        "better": "same" if forms["absorbed"] == forms["expanded"] else better,
        "ratio": forms["expanded"] / forms["absorbed"],
        "ratios": ratios,
        "crossing": crossing,
        "first": crossing // 1 + 1,  # the least number of new tokens for which expanding saves
        "latent_bytes": context * (sizes["latent"] + sizes["rope"]) * 2,
        "expanded_bytes": context * sizes["heads"] * dims * 2,
    }


def latent_summary(sizes: dict, settings: dict, work: dict) -> str:
    """The operations of both forms, why they differ, where they cross, and the bytes."""
    fresh, context, forms = work["fresh"], work["context"], work["forms"]
    sentences: list[str] = []
    if settings["new"] > context:
        sentences.append(
            f"The cache holds only {tokens_words(context)} after the step, so"
            f" {fixed(settings['new'], 0)} cannot be new, and all {fixed(context, 0)} count as new."
        )
    step = f"With {new_words(fresh)} and {tokens_words(context)} in the cache after the step"
    if fresh == context:
        step = f"For a prompt of {tokens_words(fresh)} from scratch"
    expanded, absorbed = flop_words(forms["expanded"]), flop_words(forms["absorbed"])
    layer = f"one layer of {sizes['title']}"
    if work["better"] == "same":
        sentences.append(f"{step}, both forms take {expanded} in {layer}.")
    elif work["better"] == "absorb":
        sentences.append(
            f"{step}, {layer} takes {absorbed} if it absorbs the matrices and {expanded},"
            f" {times_words(work['ratio'])} as much, if it expands the latents."
        )
    else:
        sentences.append(
            f"{step}, {layer} takes {expanded} if it expands the latents and {absorbed},"
            f" {times_words(1 / work['ratio'])} as much, if it absorbs the matrices."
        )
    expanding = flop_words(forms["expanding"])
    if fresh == context:
        sentences.append(
            "Since every token is new, both forms multiply every token by the matrices, which takes"
            f" {expanding}. Attention then takes {flop_words(forms['expanded_attention'])} over"
            " expanded keys and values, but"
            f" {flop_words(forms['absorbed_attention'])} over latents, because a latent vector is"
            " longer than the key and the value of a head."
        )
    else:
        sentences.append(
            f"Expanding takes {expanding}, however many tokens are new. After that, each new token"
            f" takes {flop_words(forms['each_expanded'])} instead of"
            f" {flop_words(forms['each_absorbed'])}, so expanding saves operations from"
            f" {new_words(work['first'])} on."
        )
    more = times_words(work["expanded_bytes"] / work["latent_bytes"])
    sentences.append(
        f"Both forms read {bytes_words(work['latent_bytes'], 1024)} of latents from the cache"
        " (bfloat16). All expanded keys and values together would fill"
        f" {bytes_words(work['expanded_bytes'], 1024)}, {more} as much."
    )
    return " ".join(sentences)


def flop_words(flops: float) -> str:
    """Operations in words: '1.17 GFLOP'."""
    return scaled_words(flops, "FLOP")


def latent_formula(sizes: dict, work: dict) -> list[str]:
    """The operations of both forms, part by part, and the crossover, in which heads cancel."""
    fresh, context, forms = fixed(work["fresh"], 0), fixed(work["context"], 0), work["forms"]
    latent, nope, rope, value = sizes["latent"], sizes["nope"], sizes["rope"], sizes["value"]
    made = f"{latent} \u00d7 ({nope} + {value})"
    heads = f"{sizes['heads']} heads"
    products = f"2 \u00d7 {fresh} \u00d7 {context} \u00d7 {heads}"
    saved = f"(2 \u00d7 {latent} \u2212 {nope} \u2212 {value}) / ({made})"
    return [
        f"expanding the latents: 2 \u00d7 {context} \u00d7 {heads} \u00d7 {made}"
        f" = {flop_words(forms['expanding'])}",
        f"attention, expanded: {products} \u00d7 ({nope + rope} + {value})"
        f" = {flop_words(forms['expanded_attention'])}",
        f"absorbing the matrices: 2 \u00d7 {fresh} \u00d7 {heads} \u00d7 {made}"
        f" = {flop_words(forms['absorbing'])}",
        f"attention, absorbed: {products} \u00d7 ({latent + rope} + {latent})"
        f" = {flop_words(forms['absorbed_attention'])}",
        f"equal at 1 / (1 / {context} + {saved}) = {trimmed(work['crossing'], 1)} new tokens",
        "(every new token is counted with every token in the cache, even where a causal mask"
        " hides it)",
    ]


MOST_NEW = 8192  # at the right end of the axis


def new_words(tokens: float) -> str:
    """'1 new token', '512 new tokens'."""
    return count_words(tokens, "new token", "new tokens")


def ratio_words(work: dict) -> str:
    """The operations of the expanded form in those of the absorbed one: '117 times'."""
    return "exactly equal" if work["better"] == "same" else times_words(work["ratio"])


def curve_tokens(last: int) -> list[int]:
    """The numbers of new tokens at which the curve is computed: 1, 2, 3, 4, 6, 8 ... last."""
    counts = [1]
    at = 2
    while at <= last:
        counts.append(at)
        if at < last:
            counts.append(at + at // 2)
        at = at * 2
    return counts


def latent_bars(work: dict) -> dict:
    """The operations of both forms: products with the matrices, then attention."""
    forms = work["forms"]
    most = max(forms["expanded"], forms["absorbed"])
    unit = flops_unit(most)
    parts = [
        ["expanding the latents", forms["expanding"], "recomputed"],
        ["attention", forms["expanded_attention"], "cached"],
        ["absorbing the matrices", forms["absorbing"], "query"],
        ["attention", forms["absorbed_attention"], "cached"],
    ]
    for part in parts:
        part[1] = part[1] / unit["size"]
    label = f"Operations of one layer for {new_words(work['fresh'])}"
    bars = [["expanded", parts[:2]], ["absorbed", parts[2:]]]
    return bars_panel(label, unit["name"], most / unit["size"] * 1.04, bars)


def latent_curve(work: dict) -> dict:
    """The ratio of the two forms by the number of new tokens, up to a prompt from scratch."""
    y = axis_decades("operations, expanded / absorbed", 0.1, 200, 1)
    crossing = work["crossing"]
    upright = [[crossing, y["min"]], [crossing, 0.8 * y["max"]]]
    lines = [
        [f"{tokens_short(work['context'])} cached", "ink", work["ratios"], False],
        ["equal", "muted", [[1, 1], [MOST_NEW, 1]], False],
        [f"{trimmed(crossing, 1)} tokens", "muted", upright, True],
    ]
    label = "Above 1, absorbing takes fewer operations; below 1, expanding does"
    x, point = axis_tokens("new tokens in the step", 1, MOST_NEW), [ratio_words(work), "ink"]
    return curves_panel(label, x, y, lines, [point + [work["fresh"], work["ratio"]]])
