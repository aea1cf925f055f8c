"""What programs that quantise weights write: into config.json, or into a file beside it.

One function for each program returns what its object states. Where none says how a module is
stored, the program itself and the loader of vLLM 0.33.0 decide: norms and biases are in 16 bits,
routers and embeddings in all formats but MLX's, the head in most.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from kvlib.config import words
from kvlib.config.json_files import read_json
from kvlib.config.keys import UNSET, Keys
from kvlib.config.quantised import BLOCKS, KV, WILD, Format, Packing, Quantised, plain
from kvlib.errors import CheckpointError

KEYS = ("quantization_config", "quantization", "compression_config")
FILES = {
    "hf_quant_config.json": "modelopt", "quantize_config.json": "gptq", "quant_config.json": "awq",
}  # fmt: skip

# keys of these files on which no size depends: they say how to quantise, to load and to compute
HARMLESS = frozenset(
    str.split("""
    quant_method producer provider meta backend version observer activation_scheme fmt dequantize
    run_compressed global_compression_ratio observer_kwargs desc_act sym damp_percent dataset
    tokenizer mse damp_auto_increment true_sequential static_groups act_group_aware do_fuse
    batch_size model_seqlen max_input_length cache_block_outputs use_exllama model_name_or_path
    model_file_base_name block_name_to_quantize use_cuda_fp16 module_name_preceding_first_block
    exllama_config disable_exllama fuse_max_seq_len modules_to_fuse bnb_4bit_quant_storage
    llm_int8_threshold llm_int8_enable_fp32_cpu_offload bnb_4bit_compute_dtype _load_in_4bit
    _load_in_8bit zp_dtype pack_dtype pad_token_id input_activations output_activations
""")
)

# what `kvlib.model.checkpoint` makes floats of: fp8, plain and in blocks, and mxfp4
LOADED = (Packing(8), Packing(8, 32, 128, 128), Packing(4, 8, columns=32))


def read(keys: Keys, folder: str | None, to_run: bool) -> Quantised | None:
    """Return what config.json (`keys`) or a file of the folder states; None for plain weights.

    config.json decides, as in vLLM. Raises CheckpointError for a file that contradicts it, for a
    format that kvlib cannot count and, if the model is `to_run`, for all but fp8 and mxfp4.
    """
    stated: Quantised | None = None
    for inside, method, key, refused in _statements(keys, folder):
        reader, statement = READERS.get(_method(inside.data, method) or ""), None
        advice = f"{words.without(key)} counts the plain model"
        if reader and (reader in (_modelopt, _fp8, _mxfp4) or not to_run):
            try:
                statement = reader(inside)
                if reader is not _modelopt:
                    _refuse_others(inside)
                names = (*statement.kept, *dict(statement.listed)) if statement else ()
                if statement and sum(bool(WILD.search(name)) for name in names) > MOST_PATTERNS:
                    raise CheckpointError(f"{statement.source}: has many patterns, needed: {MANY}")
            except CheckpointError as error:
                if not to_run:
                    error.args, error.without = (f"{error}; {advice}",), key
                raise
        loads = statement and statement.default in LOADED and not statement.listed
        if statement is None or (to_run and statement.name and not loads):
            counted = f"kvlib does not count these weights; {advice}"
            why = "quantised weights are not read, except fp8 and mxfp4" if to_run else counted
            refusal = CheckpointError(f"{refused} ({why})")
            refusal.without = None if to_run else key
            raise refusal
        if stated is None:
            stated = statement
        elif stated.agrees(statement):
            if statement.kv and not stated.kv:
                where = f"{stated.source} with {statement.source}"
                stated = replace(stated, kv=statement.kv, source=where)
        else:
            others = ", for other modules" if str(statement) == str(stated) else ""
            raise CheckpointError(
                f"{statement.source} says {statement}, {stated.source} {stated}{others}; keep one"
            )
    return stated


def _statements(keys: Keys, folder: str | None) -> Iterator[tuple[Keys, str | None, str, str]]:
    """Yield each object, its program if that is known, its key, and why it may be refused."""
    text, values = keys.data.get("text_config"), list[Any]()
    decoder = [keys.inner("text_config", text)] if isinstance(text, Mapping) else []
    for config in (keys, *decoder):
        for key in KEYS:
            value = config.data.get(key)
            if value is None or value == {} or value in values:  # MLX says everything twice
                continue
            values.append(value)
            refused = str(config.error(key, "null or no such key"))
            stated = {k: v for k, v in config.data.items() if k == "expert_dtype"}  # DeepSeek-V4
            stated |= value if isinstance(value, dict) else {}
            yield config.inner(key, stated), None, key, refused
    for file, method in FILES.items() if folder is not None else ():
        path = os.path.join(folder or "", file)
        if not os.path.lexists(path):
            continue
        value = read_json(path)
        said = value.get("quantization", value)
        if not said:  # it says nothing
            continue
        inside = Keys(value, words.path(path))
        inside.model_type = keys.model_type
        refused = f"the weights of this folder are quantised ({words.stated(said)})"
        yield inside, method, KEYS[0], f"{inside.source}: {refused}, needed: no such file"


def _method(data: Mapping[str, Any], method: str | None) -> str | None:
    """Return the program that wrote an object: what it says, the file's, or whose keys it has."""
    said = data.get("quant_method", method)
    if said != "fp8" and {"quant_algo", "kv_cache_quant_algo"} & data.keys():
        return "modelopt"
    if said is None:
        owners = {"config_groups": "compressed-tensors", "bits": "mlx", "quantization": "modelopt"}
        return next((owner for key, owner in owners.items() if key in data), None)
    return said if isinstance(said, str) else None


MOST_PATTERNS = 500  # with wildcards; published files have 64
MANY = f"at most {MOST_PATTERNS} names with wildcards"
LONGEST, STARS, VARIANTS = 200, 4, 64  # of a regular expression, and the wildcards it becomes
SPECIAL, TOLD = re.compile(r"[^\w./-]"), re.compile(r"(^|[.*?])\d+([.*?]|$)")
ATOM = re.compile(
    r"(?P<any>\.\*)|(?P<one>\.)|(?P<number>(?:\\d|\[0-9\])\+)|\\(?P<escaped>[._/-])"
    r"|(?P<same>[\w/-])|\((?:\?:)?(?P<either>[^()]*)\)"
)
REGEX = r"names, or patterns of letters, ., .*, \d+ and (a|b), with no number but the layer's"


def _names(keys: Keys, key: str, spelled: Callable[[str], list[str]]) -> tuple[str, ...]:
    """Return the names and wildcards of a list, as `Quantised` has them."""
    listed = keys.read(key, list, "a list of names", [])
    if not all(isinstance(name, str) for name in listed):
        raise keys.error(key, "a list of names")
    if sum(bool(SPECIAL.search(name)) for name in listed) > MOST_PATTERNS:
        raise keys.error(key, MANY)
    try:
        names = tuple(plain(name) for one in listed for name in spelled(one))
    except ValueError as error:
        raise keys.error(key, str(error)) from None
    wild = [name for name in names if WILD.search(name)]
    if len(wild) > MOST_PATTERNS or any(map(_tells_apart, wild)):
        raise keys.error(key, MANY if len(wild) > MOST_PATTERNS else REGEX)
    return names


def _tells_apart(pattern: str) -> bool:
    """Return whether a pattern has a number that is not a layer's."""
    return bool(TOLD.search(re.sub(r"layers[.?]\d+", "", pattern)))


def _wildcards(name: str) -> list[str]:
    """Return what a name of Model Optimizer's covers. ValueError if it may be slow or unclear."""
    if not WILD.search(name):
        return [name]
    if name.count("*") > STARS or re.search("[?[]", name) or _tells_apart(name):
        raise ValueError("names with at most 4 of *, no [ or ?, no number but the layer's")
    return [f"*.{name}.*"]


def _either(name: str) -> list[str]:
    """Return what a name or regular expression covers, wherever a module's name has it."""
    if not SPECIAL.search(name):
        return [name.strip(".")]
    return [f"*.{glob}.*" for glob in _globs(name)]


def _marked(name: str) -> list[str]:
    """Return what a name, or a regular expression after "re:", covers from its first letter on."""
    if not name.startswith("re:"):
        return [name]
    pattern = name[3:].removeprefix("^")
    return [f".{g}." if pattern[-1:] == "$" else f".{g}*" for g in _globs(pattern.rstrip("$"))]


def _globs(pattern: str) -> list[str]:
    """Return wildcards that match what a regular expression does, in less than exponential time."""
    globs, at, limit = [""], 0, len(pattern) > LONGEST or pattern.count("*") > STARS
    while at < len(pattern):
        atom = ATOM.match(pattern, at)
        if atom is None or not atom.lastgroup or limit:
            raise ValueError(REGEX)
        text, at = atom[atom.lastgroup], atom.end()
        digits = ["[0-9]", "[0-9]" * 2, "[0-9]" * 3]
        options = {"any": ["*"], "one": ["?"], "number": digits}.get(atom.lastgroup, [text])
        if atom.lastgroup == "either":
            options = [glob for part in text.split("|") for glob in _globs(part)]
        globs = [glob + option for glob in globs for option in options]
        if len(globs) > VARIANTS:
            raise ValueError(REGEX)
    return globs


HEAD = BLOCKS | {"head"}
MIXED, MXFP4 = "MIXED_PRECISION", Packing(4, 8, columns=32)
# quant_algo, as vLLM reads it (LINEAR_ALGOS of modelopt.py in
# vllm/model_executor/layers/quantization)
FORMATS = {
    "FP8": Packing(8),
    "FP8_PB_WO": Packing(8, 32, 128, 128),
    "MXFP8": Packing(8, 8, columns=32),
    **dict.fromkeys(("NVFP4", "W4A16_NVFP4"), Packing(4, 8, columns=16)),
}


def _modelopt(keys: Keys) -> Quantised | None:
    """Return what NVIDIA's Model Optimizer states, in its file or in config.json."""
    inner = keys.data.get("quantization")
    if isinstance(inner, dict):
        keys = keys.inner("quantization", inner)
    cache_alone = "kv_cache_quant_algo" in keys.data or keys.data.get("quant_method") == "modelopt"
    if "quant_algo" not in keys.data and not cache_alone:
        return None
    name, default = _algo(keys, MIXED, default=None)
    names = "exclude_modules" if "exclude_modules" in keys.data else "ignore"
    kept, listed = _names(keys, names, _wildcards), dict[str, Packing | None]()
    if name == MIXED:
        layers = keys.read("quantized_layers", dict, "the format of each module", valid=bool)
        inside = keys.inner("quantized_layers", layers)
        for module, entry in layers.items():
            if not isinstance(entry, dict) or WILD.search(module):
                raise inside.error(module, "an object with quant_algo, of one module")
            listed[plain(module)] = _algo(inside.inner(module, entry))[1]
        return Quantised(*_said(keys), MIXED, None, BLOCKS, kept, tuple(listed.items()))
    return Quantised(*_said(keys), name, default, HEAD, kept)


def _algo(keys: Keys, *more: str, default: Any = UNSET) -> tuple[str | None, Packing | None]:
    """Return quant_algo and its format, whose groups are those that it has in published files."""
    names = (*FORMATS, *more)
    needed = f"one of {', '.join(names)}"
    said = keys.read("quant_algo", str, needed, default, lambda name: name.upper() in names)
    name = said and said.upper()
    stored = FORMATS.get(name)
    if stored and stored.columns and stored.rows == 1:
        keys.only("group_size", stored.columns, f"{name} has such groups")
    return name, stored


def _fp8(keys: Keys) -> Quantised:
    """Return what DeepSeek, Qwen, Mistral and others state (fp8.py of vLLM).

    Scales of blocks are float32, also those that DeepSeek-V3.1 rounds to powers of two ("ue8m0");
    V4 stores the exponents alone (`FP8Linear` of transformers 5.23). Files of V3.2, V4 and GLM-5
    have weights of the indexer's heads, and what compresses keys, in 16 bits without saying so.
    """
    silent = ("indexer.weights_proj", "compressor")
    kept = _names(keys, "modules_to_not_convert", _either) + _names(keys, "ignored_layers", _either)
    scales = _one_of(keys, "scale_fmt", ("float", "ue8m0"), "float")
    default, listed = FORMATS["FP8"], dict[str, Packing | None]()
    if _one_of(keys, "expert_dtype", ("fp8", "fp4"), "fp8") == "fp4":
        listed["experts"] = MXFP4
    if keys.data.get("weight_block_size") is not None:
        short = scales == "ue8m0" and keys.model_type == "deepseek_v4"
        default = Packing(8, 8 if short else 32, *_block(keys, "weight_block_size"))
    if "quant_algo" not in keys.data:
        kept += silent
        return Quantised(*_said(keys), "fp8", default, BLOCKS, kept, tuple(listed.items()))
    # Model Optimizer quantised some modules of such a file again, and left the others
    again = _modelopt(keys)
    if again is None or again.name != MIXED:
        raise keys.error("quant_algo", f"{MIXED} or no such key, because quant_method is fp8")
    keys.seen.update(keys.data)
    return replace(again, default=default, kept=silent)


def _block(keys: Keys, key: str) -> tuple[int, int]:
    """Return the rows and columns of a block."""
    sizes: list[int] = keys.read(key, list, "rows and columns")
    if len(sizes) != 2 or not all(type(n) is int and 0 < n <= 65_536 for n in sizes):
        raise keys.error(key, "rows and columns from 1 to 65,536")
    return sizes[0], sizes[1]


def _group(keys: Keys, key: str) -> int:
    """Return the columns of a group; 0 for a whole row, which files call -1."""
    if keys.data.get(key) == -1:
        keys.seen.add(key)
        return 0
    return keys.count(key)


def _mxfp4(keys: Keys) -> Quantised:
    """Return what gpt-oss states, whose experts alone are quantised (arXiv:2508.10925)."""
    kept = _names(keys, "modules_to_not_convert", _either)
    return Quantised(*_said(keys), "mxfp4", MXFP4, frozenset({"expert"}), kept)


def _awq(keys: Keys) -> Quantised:
    """Return what AutoAWQ states: groups with a zero and a float16 scale (auto_awq.py of vLLM)."""
    bits = _one_of(keys, "w_bit" if "w_bit" in keys.data else "bits", (4, 8))
    size = _group(keys, "q_group_size" if "q_group_size" in keys.data else "group_size")
    keys.only("zero_point", True, "groups have zeros")
    keys.read("version", str, "'gemm'", None, lambda version: version.lower() == "gemm")
    kept = _names(keys, "modules_to_not_convert", _either)
    covers = HEAD if keys.flag("lm_head") else BLOCKS
    packing = Packing(bits, 16 + bits, columns=size)
    return Quantised(*_said(keys), f"AWQ int{bits}", packing, covers, kept)


def _gptq(keys: Keys) -> Quantised:
    """Return what AutoGPTQ and GPTQModel state (auto_gptq.py of vLLM): groups with a float16 scale.

    Symmetric files have zeros, too, and files without desc_act say the group of each column, in an
    int32. Rules for some modules (`dynamic`, `modules_in_block_to_quantize`) are refused.
    """
    for key in ("checkpoint_format", "format"):
        _one_of(keys, key, ("gptq", "gptq_v2"), "gptq")
    keys.only("is_marlin_format", False, "weights are packed as GPTQ packs them")
    covers = HEAD if keys.flag("lm_head") else BLOCKS
    bits = _one_of(keys, "bits", (2, 3, 4, 8))
    packing = Packing(bits, 16 + bits, columns=_group(keys, "group_size"), indices=32)
    return Quantised(*_said(keys), f"GPTQ int{bits}", packing, covers)


def _bitsandbytes(keys: Keys) -> Quantised:
    """Return what bitsandbytes states: float32 scales of 64 numbers, or of rows (LLM.int8).

    Double quantisation stores scales in 8 bits, with a float32 for 256 of them (arXiv:2305.14314).
    """
    four = keys.flag("load_in_4bit")
    if four == keys.flag("load_in_8bit"):
        raise keys.error("load_in_4bit", "true, or load_in_8bit: true")
    keys.only("llm_int8_has_fp16_weight", False, "weights are stored in 8 bits")
    kind = _one_of(keys, "bnb_4bit_quant_type", ("fp4", "nf4"), "fp4")
    scale = Fraction(8 * 256 + 32, 256) if keys.flag("bnb_4bit_use_double_quant") else 32
    name, default = (kind, Packing(4, scale, columns=64)) if four else ("int8", Packing(8, 32))
    kept = _names(keys, "llm_int8_skip_modules", _either)
    return Quantised(*_said(keys), name, default, _with_routers(keys, BLOCKS), kept)


def _with_routers(keys: Keys, covers: frozenset[str]) -> frozenset[str]:
    """Return kinds with routers, where programs that quantise every `Linear` have such routers."""
    parameters = ("deepseek", "kimi_k2", "glm")  # routers that are plain parameters
    return covers if keys.model_type.startswith(parameters) else covers | {"router"}


# compressed-tensors (compressors/*/base.py): format → its name, type and bits, and a scale's bits
_COMPRESSED = {
    **dict.fromkeys(("pack-quantized", "int-quantized"), ("int{}", "int", range(1, 9), 16)),
    **dict.fromkeys(("float-quantized", "naive-quantized"), ("float{}", "float", (8,), 16)),
    "nvfp4-pack-quantized": ("nvfp4", "float", (4,), 8),
    "mxfp4-pack-quantized": ("mxfp4", "float", (4,), 8),
}
_SCALES = {"torch.uint8": 8, "torch.float8_e4m3fn": 8, "torch.bfloat16": 16, "torch.float16": 16}


def _compressed(keys: Keys) -> Quantised:
    """Return what compressed-tensors states: groups of modules, each stored in one format."""
    kept, names = _names(keys, "ignore", _marked), list[str]()
    _one_of(keys, "quantization_status", ("compressed", "frozen"), "compressed")
    sparse = keys.read("sparsity_config", dict, "an object or null", {})
    keys.inner("sparsity_config", sparse).only("format", "dense", "every weight is stored")
    covers, default, listed = frozenset[str](), None, dict[str, Packing | None]()
    keys.seen.add("format")
    groups = keys.read("config_groups", dict, "1 to 64 groups", valid=lambda g: 0 < len(g) <= 64)
    inside = keys.inner("config_groups", groups)
    for group in groups:
        value = inside.read(group, dict, "an object with weights and targets")
        stated = inside.inner(group, {"format": keys.data.get("format"), **value})
        name, packing = _scheme(stated)
        targets = _names(stated, "targets", _marked)
        _refuse_others(stated)
        if not targets or ("Linear" in targets and covers):
            raise stated.error("targets", "names of modules, and Linear in one group alone")
        if "Linear" in targets:
            covers, default = HEAD, packing
        listed |= {target: packing for target in targets if target != "Linear"}
        names += [name] * (name not in names)
    stored = tuple(listed.items())
    return Quantised(*_said(keys), " and ".join(names), default, covers, kept, stored)


def _scheme(keys: Keys) -> tuple[str, Packing]:
    """Return the name and the sizes of a group; scales have the type of the model's weights."""
    form = _one_of(keys, "format", _COMPRESSED)
    name, kind, widths, scale = _COMPRESSED[form]
    weights = keys.inner("weights", keys.read("weights", dict, "how weights are stored"))
    _one_of(weights, "type", (kind,))
    bits, size = _one_of(weights, "num_bits", widths), weights.data.get("group_size")
    name, stored = name.format(bits), 8 if form == "int-quantized" else bits
    scale = _SCALES.get(_one_of(weights, "scale_dtype", _SCALES, ""), scale)
    scale += 0 if weights.flag("symmetric", True) else stored
    usual = "tensor" if size is None else "channel" if size == -1 else "group"
    known = ("tensor", "channel", "group", "tensor_group", "block")
    strategy, rows, columns = _one_of(weights, "strategy", known, usual), 1, 0
    weights.seen.update(("group_size", "block_structure"))
    if strategy == "block":
        rows, columns = _block(weights, "block_structure")
    elif "group" in strategy:
        columns = _group(weights, "group_size")
    weights.only("dynamic", False, "scales are stored")
    order = _one_of(weights, "actorder", ("group", "dynamic", "weight", "static"), "weight")
    _refuse_others(weights)
    if strategy == "tensor":
        return name, Packing(stored)
    return name, Packing(stored, scale, rows, columns, 32 * (order in ("group", "dynamic")))


def _mlx(keys: Keys) -> Quantised:
    """Return what mlx-lm states; other keys are modules with other sizes, or false."""
    default, listed = _mode(keys), dict[str, Packing | None]()
    others = [k for k in keys.data if k not in ("bits", "group_size", "mode", "quant_method")]
    for module in others:
        value, sizes = keys.data[module], None
        if WILD.search(module) or value is not False and not isinstance(value, dict):
            raise keys.error(module, "the sizes of a module, or false")
        if value is not False:
            inside = keys.inner(module, value)
            sizes = _mode(inside)
            _refuse_others(inside)
        listed[plain(module.replace("switch_mlp.", "experts."))] = sizes
    keys.seen.update(others)
    covers, name = _with_routers(keys, HEAD | {"embedding"}), f"MLX int{default.bits}"
    return Quantised(*_said(keys), name, default, covers, (), tuple(listed.items()))


def _mode(keys: Keys) -> Packing:
    """Return the sizes of one of MLX's modes: "affine" has a scale and a bias in 16 bits."""
    modes = {"affine": 32, "mxfp4": 8, "mxfp8": 8, "nvfp4": 8}
    scale = modes[_one_of(keys, "mode", modes, "affine")]
    bits, size = _one_of(keys, "bits", range(2, 9)), keys.count("group_size")
    return Packing(bits, scale, columns=size, whole=True)


READERS: dict[str, Callable[[Keys], Quantised | None]] = {
    "modelopt": _modelopt,
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "awq": _awq,
    "gptq": _gptq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed,
    "mlx": _mlx,
}


def _one_of(keys: Keys, key: str, known: Collection[Any], default: Any = UNSET) -> Any:
    """Return a value that must be one of those."""
    first = next(iter(known))
    needed = f"one of {', '.join(map(str, known))}"
    return keys.read(key, type(first), needed, default, lambda value: value in known)


def _refuse_others(keys: Keys) -> None:
    """Raise for the first key that says something, that no reader has read and that may matter."""
    for key, value in keys.data.items():
        if key not in keys.seen and key not in HARMLESS and value not in (None, "", [], {}):
            raise keys.error(key, "no such key, because kvlib does not know what it changes")


def _said(keys: Keys) -> tuple[str, Format | None]:
    """Return where a program says something, and how it stores keys and values."""
    where = (f"{keys.inside.rstrip('.')} of " if keys.inside else "") + keys.source
    return where, _kv(keys)


def _kv(keys: Keys) -> Format | None:
    """Return the cache's format: `kv_cache_quant_algo`, or `kv_cache_scheme` in config.json."""
    key = "kv_cache_quant_algo"
    if isinstance(keys.data.get("kv_cache_scheme"), str):
        key = "kv_cache_scheme"
    elif scheme := keys.read("kv_cache_scheme", dict, "an object or null", {}):
        inside = keys.inner("kv_cache_scheme", scheme)
        inside.only("type", "float", "keys and values are stored as fp8")
        inside.only("num_bits", 8, "keys and values are stored as fp8")
        return KV["FP8"]
    needed = f"one of {', '.join(KV)}, or null"
    name = keys.read(key, str, needed, None, lambda name: name.upper() in KV)
    return KV[name.upper()] if name else None
