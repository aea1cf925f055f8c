"""How tools/sass.py finds a loop, and the way through it, in a disassembler's text."""

import json

import sass

TEXT = """
.headerflags @"EF_CUDA_SM90"
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0020*/              @!P0 BRA `(.L_x_2) ;
        /*0030*/                   MUFU.TANH R9, R9 ;
        /*0040*/                   FMUL R9, R9, R8 ;
.L_x_2:
        /*0050*/               @P1 BRA `(.L_x_3) ;
        /*0060*/                   IADD3 R2, R2, 0x10, RZ ;
        /*0070*/                   LDG.E.64.CONSTANT R6, desc[UR4][R2.64] ;
.L_x_3:
        /*0080*/                   HMMA.16816.F32 R4, R4, R6, R4 ;
        /*0090*/               @P2 BRA `(.L_x_1) ;
        /*00a0*/                   EXIT ;
"""


def test_the_way_passes_by_loads_and_leaves_out_what_is_rare():
    code, labels = sass.parsed(TEXT)
    assert len(code) == 11 and labels == {".L_x_1": 1, ".L_x_2": 5, ".L_x_3": 8}
    assert sass.main_loop(code, labels) == (1, 9)
    kinds = [sass.kind(x) for x in sass.way(code, labels, 1, 9)]
    assert kinds == [
        "LDG.E.128.CONSTANT", "BRA", "BRA", "IADD3", "LDG.E.64.CONSTANT", "HMMA.16816.F32", "BRA",
    ]  # fmt: skip


def test_what_is_stored_is_of_kernels_that_there_are():
    from kvlib.kernels.results import registers_of

    kernels = json.loads(sass.RESULT.read_text())["kernels"]
    assert list(kernels) == [title for title, *_ in sass.KERNELS]
    for (*_, name, keys, width), row in zip(sass.KERNELS, kernels.values(), strict=True):
        assert row["kernel"] == name and row["bytes"] == keys * width
        assert registers_of(name) and row["instructions"] > 0 and row["local_memory"] == 0
