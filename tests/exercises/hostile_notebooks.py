"""Notebooks written against the grader, by name: what each tries, and its code.

All of them answer `times_computed` of the chapter intro. One that finds what it looks for gives the
right answer and gets its point, so a point is a hole.
"""

from __future__ import annotations

from dataclasses import dataclass

SECRET = 902417311  # a hidden draw, part of the name of its file and of a variable of the shell
MARK = "kvlib-stray-process"
HONEST = "def times_computed(position, steps):\n    return max(0, steps - position)"

# Answers right if `look()` finds the secret in anything it yields.
LOOKING = """
import os, sys, gc
def look():
{look}
HALF = {half}
def times_computed(position, steps):
    for text in look():
        if str(HALF + HALF + 1) in str(text):
            return max(0, steps - position)
    return -1
"""


@dataclass(frozen=True)
class Case:
    """A notebook. walled: what it tries is prevented by the sandbox alone."""

    name: str
    source: str
    walled: bool = False
    points: int = 0


def looks(name: str, look: str, *, walled: bool = False) -> Case:
    body = "\n".join(f"    {line}" for line in look.strip().splitlines())
    return Case(name, LOOKING.format(look=body, half=SECRET // 2), walled)


def returns(name: str, value: str, before: str = "", points: int = 0) -> Case:
    source = f"{before}\ndef times_computed(position, steps):\n    return {value}"
    return Case(name, source, points=points)


def does(name: str, body: str, *, walled: bool = False) -> Case:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return Case(name, f"import os, sys\ndef times_computed(position, steps):\n{lines}", walled)


EVERY_PROCESS = """
for pid in filter(str.isdigit, os.listdir("/proc")):
    try: yield open(f"/proc/{pid}/NAME", errors="replace").read()
    except OSError: pass
"""
MEMORY = """
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) != os.getpid() and (int(pid) == os.getppid() or TOLD in cmdline(pid)):
        try:
            for line in open(f"/proc/{pid}/maps"):
                a, b = (int(x, 16) for x in line.split()[0].split("-"))
                if "rw" in line and b - a < 1 << 26:
                    with open(f"/proc/{pid}/mem", "rb", 0) as file:
                        file.seek(a)
                        yield file.read(b - a)
        except OSError: pass
"""
FRAME = """
import json, struct, time
def frame(head):
    text = json.dumps(head).encode()
    return struct.pack("<QQ", len(text), 0) + text
def everywhere(data):
    for fd in range(3, 40):
        try: os.write(fd, data)
        except OSError: pass
"""
STRAY = f"[sys.executable, '-S', '-c', 'import time; time.sleep(60)', '{MARK}']"

CASES = (
    looks("it looks through its frames", """
frame = sys._getframe()
while frame:
    yield {**frame.f_globals, **frame.f_locals}
    frame = frame.f_back"""),
    looks("it looks through all objects", """
yield from (x for x in gc.get_objects() if isinstance(x, (dict, list, tuple)) and len(x) < 50)"""),
    looks("it reads its environment", "yield dict(os.environ)"),
    looks("it reads everybody's environment", EVERY_PROCESS.replace("NAME", "environ")),
    looks("it reads everybody's command line", EVERY_PROCESS.replace("NAME", "cmdline")),
    looks("it reads the memory of its parents", MEMORY.replace("TOLD in cmdline(pid)", "False")),
    looks("it reads everybody's open files", """
for pid in filter(str.isdigit, os.listdir("/proc")):
    try: files = os.listdir(f"/proc/{pid}/fd")
    except OSError: continue
    for fd in files:
        try:
            yield os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError: pass"""),
    looks("it reads its descriptors", """
for fd in range(40):
    try:
        os.set_blocking(fd, False)
        yield os.read(fd, 1 << 20)
        os.set_blocking(fd, True)
    except OSError: pass"""),
    looks("it looks for the file of hidden tests", """
for folder, _, files in os.walk(os.path.dirname(CANARY)):
    yield files""", walled=True),
    does("it writes passed on every descriptor", """
import json
for fd in range(3, 40):
    for more in ({"kind": "checked"}, {"event": "ready"}, {"token": ""}):
        said = {"label": "intro-times-computed", "draw": 0, "status": "passed", "finding": "",
                "proved": ["all"], **more}
        try: os.write(fd, json.dumps(said).encode() + b"\\n")
        except OSError: pass
os._exit(0)"""),
    does("it sends a passed report as its own frame", FRAME + """
everywhere(frame({"status": "passed", "finding": "", "proved": ["all"], "op": "return",
                  "changes": [], "value": {"status": "passed"}}))
time.sleep(0.2)
os._exit(0)"""),
    does("junk on every descriptor, for ever", """
import time
while True:
    for fd in range(3, 40):
        try: os.write(fd, b"x\\n")
        except OSError: pass
    time.sleep(0.01)"""),
    Case("junk from a thread, while a cell sleeps", FRAME + """
import os, threading, time
def junk():
    while True:
        everywhere(b"junk\\n")
        time.sleep(0.01)
def begin():
    threading.Thread(target=junk, daemon=True).start()
    time.sleep(3600)
waited = begin()
def times_computed(position, steps):
    return waited or -1"""),
    does("it kills its parent", "import signal; os.kill(os.getppid(), signal.SIGKILL); return -1"),
    does("it kills the grader", """
import signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if b"kvbook.exercises" in open(f"/proc/{pid}/cmdline", "rb").read() and int(pid) > 1:
            if int(pid) not in (os.getpid(), os.getppid()): os.kill(int(pid), signal.SIGKILL)
    except OSError: pass
return -1""", walled=True),
    does("it leaves a process in another session", f"""
import subprocess
subprocess.Popen({STRAY}, start_new_session=True)
return -1"""),
    does("it leaves the child of a child that has ended", f"""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, {STRAY})
    os._exit(0)
return -1"""),
    does("it leaves fifty processes", """
for _ in range(50):
    if os.fork() == 0:
        import time
        os.setsid()
        time.sleep(60)
        os._exit(0)
return -1"""),
    does("it writes into the checkers", """
import kvlib, glob
folder = os.path.dirname(kvlib.__file__)
for path in glob.glob(folder + "/**/*.py", recursive=True):
    try: open(path, "a").write("\\nraise SystemExit\\n")
    except OSError: pass
return -1"""),
    does("it writes elsewhere", "open(CANARY, 'w').write('mine'); return -1", walled=True),
    does("it fills its folder and its home", """
for folder in (".", os.path.expanduser("~"), os.environ["TMPDIR"]):
    try:
        os.makedirs(folder + "/deep/er", exist_ok=True)
        open(folder + "/deep/er/file", "w").write("x" * 10**6)
        os.chmod(folder + "/deep/er", 0)
    except OSError: pass
return -1"""),
    does("it opens a connection", """
import socket
socket.create_connection(("127.0.0.1", PORT), 2).close()
return max(0, steps - position)""", walled=True),
    does("escape codes and half a character", "raise ValueError('\\x1b[2J\\ud800\\u202e passed')"),
    does("an error of ten million characters", "raise ValueError('x' * 10**7)"),
    does("an error whose words never end", """
import time
class Endless(Exception):
    def __str__(self):
        while True: time.sleep(0.01)
raise Endless"""),
    does("an error that is no exception", "raise KeyboardInterrupt"),
    returns("it equals everything", "Any()",
            "class Any:\n    __eq__ = lambda self, other: True\n    __hash__ = None"),
    returns("a whole number that equals everything", "Any(0)",
            "class Any(int):\n    __eq__ = lambda self, other: True\n    __hash__ = int.__hash__\n"
            "    __int__ = __index__ = lambda self: 1 / 0"),
    returns("its class says that it is an int", "Lie()",
            "class Lie:\n    __class__ = property(lambda self: int)\n"
            "    __eq__ = lambda self, other: True"),
    returns("a generator", "(x for x in range(10))"),
    returns("a huge number", "10**100_000"),
    returns("a million nested lists", "deep",
            "deep = []\nfor _ in range(10**6): deep = [deep]"),
    returns("a list that holds itself", "own", "own = []\nown.append(own)"),
    returns("an array of objects", "np.array([None, object()])", "import numpy as np"),
    returns("not a number", "float('nan')"),
    returns("NumPy's own whole number, which is right", "np.int64(max(0, steps - position))",
            "import numpy as np", points=1),
    returns("a repr that never ends", "Thing()",
            "import time\nclass Thing:\n    def __repr__(self):\n"
            "        while True: time.sleep(0.01)"),
    does("it unpickles itself on the other side", FRAME + """
import base64, pickle
class Bomb:
    def __reduce__(self): return (open, (CANARY, "w"))
everywhere(frame({"op": "return", "changes": [], "value":
                  ["p", base64.b64encode(pickle.dumps(Bomb())).decode()]}))
time.sleep(0.2)
os._exit(0)"""),
    does("it names what was never lent", FRAME + """
everywhere(frame({"op": "ask", "changes": [], "name": "k0", "attribute": "__globals__",
                  "args": None, "named": {}}))
return -1"""),
    does("it changes what the checker holds", FRAME + """
everywhere(frame({"op": "return", "changes": [["c0", ["l", []]], ["c1", ["a"]]], "value": 47}))
return -1"""),
    does("a frame without an end", FRAME + """
everywhere(struct.pack("<QQ", 1 << 60, 1 << 60))
return -1"""),
    does("half a frame", FRAME + "everywhere(struct.pack('<QQ', 100, 0)); time.sleep(60)"),
    does("it stands still", "import signal; os.kill(os.getpid(), signal.SIGSTOP); return -1"),
    does("it closes every descriptor", "os.closerange(0, 100); return -1"),
    does("it fills the memory", "all = []\nwhile True: all.append(bytearray(10**8))"),
    does("it prints without an end", "while True: print('x' * 10**5)"),
    does("it replaces the library under the checker", """
import kvbook.exercises.report as report, numpy as np
report.Report.status = "passed"
np.allclose = np.array_equal = lambda *a, **k: True
return -1"""),
    does("it notes the seeds of all generators", """
import numpy as np
own = np.random.default_rng
np.random.default_rng = lambda seed=None: times_computed.seeds.append(seed) or own(seed)
times_computed.seeds = getattr(times_computed, "seeds", [])
return max(0, steps - position) if times_computed.seeds else -1"""),
    does("it attaches to its parent", """
import ctypes
libc = ctypes.CDLL(None)
libc.ptrace(16, os.getppid(), 0, 0)
return -1"""),
    Case("forty thousand empty lines, and no answer", "\n" * 40_000),
    Case("no Python", "def times_computed(position, steps:\n    return 1"),
    Case("deep brackets", "(" * 50_000 + "\n" + ")" * 50_000),
)  # fmt: skip
