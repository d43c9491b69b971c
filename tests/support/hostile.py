"""Expressions that are as expensive as possible, with suitable data."""

from typing import Any


def _nested(depth: int, grow: str, first: str, last: str) -> str:
    """Bind values that each grow from the previous one, `depth` times."""
    out = last.replace("$", f"v{depth}")
    for level in range(depth, 0, -1):
        out = f"cel.bind(v{level}, {grow.replace('$', f'v{level - 1}')}, {out})"
    return f"cel.bind(v0, {first}, {out})"


def deep_value(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value, value]
    return value


STRINGS = [f"k{index}" for index in range(20_000)]
HOSTILE: dict[str, Any] = {
    "ints": list(range(40_000)),
    "others": list(range(40_000)),
    "s": "a" * 262_000,
    "ab": "abbabaab" * 32_000,
    "wide": "é😀" * 60_000,
    "strs": STRINGS,
    "dict": dict.fromkeys(STRINGS, 1),
    "objs": [{"id": index, "name": "n"} for index in range(9_000)],
    "zeros": [0] * 131_000,
    "deep": deep_value(60),
    "deeper": deep_value(300),
    "ones": [[0] for _ in range(60_000)],
    "empty_maps": [{} for _ in range(60_000)],
}
WORK, TEXT, ITEMS, LARGE, DEEP = (
    "more work than",
    "makes a text of",
    "makes a list of",
    "bytes of JSON",
    "nested more than",
)

ATTACKS = [
    ("three loops", "ints.map(a, ints.map(b, ints.map(c, a + b + c)))", WORK),
    ("a loop over loops", "lists.range(1000).map(a, lists.range(1000).map(b, a * b))", WORK),
    ("a huge range", "lists.range(1000000000000)", ITEMS),
    ("ranges in a loop", "ints.map(x, lists.range(30000).size())", WORK),
    ("a list searched for each of its items", "ints.filter(x, x in ints)", WORK),
    ("also with strings", "strs.filter(x, x in strs)", WORK),
    ("long strings searched for", "ints.filter(x, s + '' in [s + 'a', s + 'b'])", WORK),
    ("large lists compared in a loop", "ints.all(x, ints == others)", WORK),
    ("a value compared with itself through shared parts", _nested(24, "[$, $]", "'x'", "$ == $"), WORK),
    ("shared parts compared deeply", "deep == deep", WORK),
    ("very deep values compared", "deeper == deeper", DEEP),
    ("text that doubles", _nested(25, "$ + $", "s", "size($)"), TEXT),
    ("short text that doubles", _nested(28, "$ + $", "'ab'", "size($)"), TEXT),
    ("a list that doubles", _nested(25, "$ + $", "ints", "size($)"), ITEMS),
    ("a small value of exponential size", _nested(25, "[$, $]", "'x'", "$"), LARGE),
    ("the same, as text", _nested(24, "{'a': $, 'b': $}", "'x'", "'%s'.format([$])"), WORK),
    ("the same, flattened", _nested(20, "[$, $]", "[1]", "$.flatten(100).size()"), WORK),
    ("flattened at each level", _nested(12, "[$, $].flatten(50)", "ints", "size($)"), ITEMS),
    ("numbers that square", _nested(28, "$ * $", "3", "$"), "64-bit"),
    ("replace a by everything", "s.replace('a', s)", TEXT),
    ("replace in a loop", "ints.map(x, s.replace('a', 'b'))", WORK),
    ("replace between all characters", "s.replace('', 'x')", TEXT),
    ("split into characters", "s.split('')", ITEMS),
    ("join with a long text", "ints.map(x, s).join(s)", TEXT),
    ("search the worst way", "s.contains(s.substring(0, 100000) + 'b')", WORK),
    ("search backwards the worst way", "s.lastIndexOf('b' + s.substring(0, 130000))", WORK),
    ("search in a loop", "ints.map(x, s.indexOf(s.substring(0, 20) + 'b'))", WORK),
    ("a regular expression in a loop", "ints.map(x, s.matches('(a|b)*c'))", WORK),
    ("a regular expression with many states", "s.matches('(a?){500}a{500}b')", WORK),
    ("one that remembers", "ab.matches('[ab]*a[ab]{16}c')", WORK),
    ("one that backtracks elsewhere", "s.matches('^(([a-z])+.)+[A-Z]([a-z])+$')", WORK),
    ("one with large classes", r"ints.map(x, 'abc'.matches('(?i)(\\pL|\\pN){30}x'))", WORK),
    ("one that grows by repeats", "ints.map(x, 'a'.matches('(((a{9}){9}){9}b)'))", WORK),
    ("one that is refused, in a loop", "ints.exists(x, 'a'.matches('(((('))", WORK),
    ("one that is long", f"'a'.matches('{'a' * 300}')", "may have 256 characters"),
    ("format in a loop", "ints.map(x, '%s'.format([ints]))", WORK),
    ("a format of nothing but %%", "s.replace('a', '%%').format([])", TEXT),
    ("a precise format", "'%.999f'.format([1.0])", "more than 100"),
    ("sort in a loop", "lists.range(1000).map(x, strs.sort())", WORK),
    ("sort long texts", "strs.map(x, s.substring(0, 10000) + x).sort()", WORK),
    ("distinct lists", "ints.map(x, [x]).distinct()", WORK),
    ("long texts in memory", "ints.map(x, s.substring(0, 60000) + 'x').size()", WORK),
    ("wide texts in memory", "ints.map(x, wide.substring(0, 60000) + 'x').size()", WORK),
    ("lists in memory", "ints.map(x, ints + [x]).size()", WORK),
    ("errors that are absorbed", "objs.exists(x, x.nope || x.nope2 || x.nope3)", WORK),
    ("errors with long messages", "ints.exists(x, dict.nope == x)", WORK),
    ("maps gone through in a loop", "dict.map(k, dict.map(j, 1))", WORK),
    ("times read in a loop", "ints.map(x, timestamp('2026-01-01T00:00:00Z'))", WORK),
    ("cases changed in a loop", "ints.map(x, wide.upperAscii())", WORK),
    ("base64 in a loop", "ints.map(x, base64.decode(base64.encode(bytes(s.substring(0, 99999)))))", WORK),
    ("a large result twice", "[zeros, zeros]", LARGE),
    ("a result with shared parts", "deep", LARGE),
    ("a result of many small lists", "[ones, ones]", LARGE),
    ("a result of many small maps", "[empty_maps, empty_maps]", LARGE),
    ("a wide result", "wide", LARGE),
    ("a very deep result", "deeper.map(x, x)[0]", DEEP),
]

SOURCES = [
    *("-" * 4_000 + "1", "!" * 4_000 + "true", "&&".join(["true"] * 600), "@#$%^" * 800, "a b " * 1_000),
    *("input" + ".a" * 2_000, "[" * 2_000, "{" * 30 + "}" * 30, "true?1:" * 500 + "1", "'" + "x" * 4_090 + "'"),
    "[" + ",".join(["1"] * 2_000) + "]",
    "[" + ",".join(["[1].map(x,x)"] * 300) + "]",
    "cel.bind(a,[1]," * 20 + "a" + ")" * 20,
    "[1].map(x," * 20 + "x" + ")" * 20,
    "math.greatest(" + ",".join(["1"] * 2_000) + ")",
    "&&".join(["has(a.b.c)"] * 300),
    "optional.of(1).optMap(a, optional.of(a).optMap(b, optional.of(b).optMap(c, optional.of(c).optMap(d, d))))",
    "'\ud800'",
    "'\0'",
]
"""Sources that are hard to compile."""
