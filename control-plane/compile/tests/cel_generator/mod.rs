//! Generates expressions from bytes: each byte decides one choice, so that proptest can shrink them.

#![allow(clippy::expect_used, reason = "test code")]

/// The attributes that expressions can read.
pub(crate) const INPUT: &str = r#"{
    "request": {"method": "GET", "path": "/a/b?x=1", "headers": {"x-a": "1"}},
    "jwt": {"claims": {"n": 7, "f": 2.5, "s": "é🐱", "l": [1, "a", 2.5, null], "m": {"a": 1}, "t": true}},
    "metadata": {}
}"#;

/// The types of generated terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    List,
    Map,
    Timestamp,
    Duration,
    Null,
}

const KINDS: &[Kind] = &[
    Kind::Bool,
    Kind::Int,
    Kind::Uint,
    Kind::Double,
    Kind::String,
    Kind::Bytes,
    Kind::List,
    Kind::Map,
    Kind::Timestamp,
    Kind::Duration,
    Kind::Null,
];

/// The expression for these bytes. Without bytes, the first choice is taken, which is the simplest one.
pub(crate) fn expression(bytes: &[u8]) -> String {
    let mut source = Source { bytes: bytes.iter(), variables: 0 };
    let kind = source.pick(KINDS);
    source.term(kind, 4)
}

struct Source<'a> {
    bytes: std::slice::Iter<'a, u8>,
    variables: usize,
}

impl Source<'_> {
    fn byte(&mut self) -> usize {
        self.bytes.next().map_or(0, |byte| usize::from(*byte))
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let chosen = self.byte() % from.len();
        *from.get(chosen).expect("there is something to choose from")
    }

    /// A term of a kind. Sometimes of another kind, but without a static type.
    fn term(&mut self, kind: Kind, depth: usize) -> String {
        if self.byte() >= 248 {
            let other = self.pick(KINDS);
            return format!("dyn({})", self.typed(other, depth));
        }
        self.typed(kind, depth)
    }

    fn typed(&mut self, kind: Kind, depth: usize) -> String {
        if depth == 0 || self.byte().is_multiple_of(4) {
            return self.leaf(kind);
        }
        let form = self.pick(forms(kind));
        self.fill(form, depth - 1)
    }

    fn leaf(&mut self, kind: Kind) -> String {
        self.pick(leaves(kind)).to_owned()
    }

    /// Replaces each letter after a `$` by a term of its kind.
    fn fill(&mut self, form: &str, depth: usize) -> String {
        let mut parts = form.split('$');
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (letter, rest) = part.split_at(1);
            filled += &match letter {
                "b" => self.term(Kind::Bool, depth),
                "i" => self.term(Kind::Int, depth),
                "u" => self.term(Kind::Uint, depth),
                "d" => self.term(Kind::Double, depth),
                "s" => self.term(Kind::String, depth),
                "y" => self.term(Kind::Bytes, depth),
                "l" => self.term(Kind::List, depth),
                "m" => self.term(Kind::Map, depth),
                "t" => self.term(Kind::Timestamp, depth),
                "r" => self.term(Kind::Duration, depth),
                "n" => {
                    let kind = self.pick(&[Kind::Int, Kind::Uint, Kind::Double]);
                    self.leaf(kind)
                }
                _ => {
                    let kind = self.pick(KINDS);
                    format!("dyn({})", self.term(kind, depth))
                }
            };
            filled += rest;
        }
        self.variables += 1;
        filled.replace('@', &format!("v{}", self.variables))
    }
}

fn leaves(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Bool => &["true", "false", "jwt.claims.t", "has(jwt.claims.x)", "has(request.headers['x-a'].b)"],
        Kind::Int => &[
            "0",
            "1",
            "-1",
            "2",
            "3",
            "7",
            "100",
            "9223372036854775807",
            "-9223372036854775808",
            "jwt.claims.n",
            "9007199254740993",
            "4611686018427387904",
            "jwt.claims.x",
        ],
        Kind::Uint => &["0u", "1u", "2u", "7u", "18446744073709551615u", "9223372036854775808u"],
        Kind::Double => &[
            "0.0",
            "1.0",
            "-1.5",
            "2.5",
            "-0.0",
            "1e308",
            "9223372036854775808.0",
            "jwt.claims.f",
            "1e-7",
            "7.0",
            "(0.0 / 0.0)",
            "(1.0 / 0.0)",
            "123456.789",
            "-9223372036854775808.0",
            "18446744073709551616.0",
        ],
        Kind::String => &[
            "''",
            "'a'",
            "'abc'",
            "'a,b,c'",
            "'1'",
            "'-7'",
            "'2.5'",
            "'true'",
            "'é🐱'",
            "request.method",
            "request.headers['x-a']",
            "request.path",
            "jwt.claims.s",
            "' x '",
            "'2009-02-13T23:31:30Z'",
            "'1h30m'",
            "request.headers['x-b']",
            "'NaN'",
            "'ABC'",
            "'18446744073709551615'",
        ],
        Kind::Bytes => &["b''", "b'a'", r"b'\xff'", "b'abc'", r"b'\303\251'"],
        Kind::List => {
            &["[]", "[1, 2, 3]", "['a', 'b']", "jwt.claims.l", "[1, 'a', 2.5, null, [1u]]", "[true, false]", "[0, 1]"]
        }
        Kind::Map => &[
            "{}",
            "{'a': 1}",
            "{1: 'x', 2: 'y'}",
            "jwt.claims.m",
            "{true: 1u}",
            "request.headers",
            "{1u: 2}",
            "{'a': [1], 'b': null}",
        ],
        Kind::Timestamp => &[
            "timestamp('2009-02-13T23:31:30Z')",
            "timestamp('0001-01-01T00:00:00Z')",
            "timestamp('9999-12-31T23:59:59.999999999Z')",
            "timestamp('2000-02-29T12:00:00.5Z')",
            "timestamp('1969-12-31T23:59:59.25+01:00')",
            "timestamp(0)",
        ],
        Kind::Duration => &[
            "duration('1s')",
            "duration('1h30m')",
            "duration('-1.5s')",
            "duration('1ns')",
            "duration('0s')",
            "duration('9000000000s')",
        ],
        Kind::Null => &["null", "jwt.claims.l[3]"],
    }
}

/// The ways to make a term of a kind from others: `$x` is a term of any kind, `$n` a literal number, `@` a variable.
fn forms(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Bool => &[
            "($n < $n)",
            "($n <= $n)",
            "($n > $n)",
            "($n >= $n)",
            "($n == $n)",
            "($n in [$n, $n])",
            "({$i: 1}[$n] == 1)",
            "($b && $b)",
            "($b || $b)",
            "!($b)",
            "($b ? $b : $b)",
            "($i < $i)",
            "($i <= $u)",
            "($u > $d)",
            "($d >= $i)",
            "($s < $s)",
            "($y > $y)",
            "($t < $t)",
            "($r >= $r)",
            "($b < $b)",
            "($x == $x)",
            "($x != $x)",
            "($i == $d)",
            "($l == $l)",
            "($m == $m)",
            "($x in $l)",
            "($x in $m)",
            "($s in $m)",
            "$s.startsWith($s)",
            "$s.endsWith($s)",
            "$s.contains($s)",
            "$s.matches('^[a-c]+.')",
            "$l.all(@, @ == $x)",
            "$l.exists(@, @ == $x)",
            "$l.exists_one(@, @ == $x)",
            "$l.exists(@, @ > $i)",
            "$l.all(@, @ > $i)",
            "$m.all(@, @ == $x)",
            "[0, 1, 2].exists(@, $i / @ == 1)",
            "[0, 1, 2].all(@, $i / @ == 1)",
            "bool($s)",
            "($x < $x)",
            "($x && $x)",
            "($x || $x)",
            "has({'a': $x}.a)",
            "has($m.a)",
            "($x ? $b : $b)",
            "!($x)",
        ],
        Kind::Int => &[
            "($i + $i)",
            "($i - $i)",
            "($i * $i)",
            "($i / $i)",
            "($i % $i)",
            "(-($i))",
            "size($s)",
            "$l.size()",
            "size($m)",
            "size($y)",
            "int($s)",
            "int($u)",
            "int($d)",
            "int($t)",
            "($b ? $i : $i)",
            "[$i, $i][$i]",
            "{'k': $i}.k",
            "{'k': $i}['k']",
            "$t.getFullYear()",
            "$t.getMonth()",
            "$t.getDate()",
            "$t.getDayOfMonth()",
            "$t.getDayOfWeek()",
            "$t.getDayOfYear()",
            "$t.getHours()",
            "$t.getMinutes()",
            "$t.getSeconds()",
            "$t.getMilliseconds()",
            "$r.getHours()",
            "$r.getMinutes()",
            "$r.getSeconds()",
            "$r.getMilliseconds()",
            "$s.indexOf($s)",
            "$s.indexOf($s, $i)",
            "($x + $x)",
            "($x * $x)",
            "$x.size()",
            "(-$x)",
        ],
        Kind::Uint => &[
            "($u + $u)",
            "($u - $u)",
            "($u * $u)",
            "($u / $u)",
            "($u % $u)",
            "uint($n)",
            "uint($i)",
            "uint($d)",
            "uint($s)",
        ],
        Kind::Double => {
            &["($d + $d)", "($d - $d)", "($d * $d)", "($d / $d)", "(-($d))", "double($i)", "double($u)", "double($s)"]
        }
        Kind::String => &[
            "($s + $s)",
            "string($i)",
            "string($u)",
            "string($b)",
            "string($y)",
            "string($s)",
            "($b ? $s : $s)",
            "$s.lowerAscii()",
            "$s.upperAscii()",
            "$s.trim()",
            "$s.replace($s, $s)",
            "$s.replace($s, $s, $i)",
            "$s.substring($i)",
            "$s.substring($i, $i)",
            "$s.charAt($i)",
            "string($d)",
            "string($t)",
            "string($r)",
            "$m[$s]",
            "string($x)",
        ],
        Kind::Bytes => &["($y + $y)", "bytes($s)", "bytes($y)"],
        Kind::List => &[
            "[$x, $x]",
            "($l + $l)",
            "$l.map(@, [@, $x])",
            "$l.map(@, @ == $x, @)",
            "$l.filter(@, @ != $x)",
            "$m.map(@, @)",
            "$s.split($s)",
            "$s.split($s, $i)",
            "[$i, $i, $i].filter(@, @ > $i)",
            "$l.map(@, $l.map(@, @))",
            "[$x]",
        ],
        Kind::Map => &["{'a': $x, 'b': $x}", "{$i: $x, $i: $x}", "{$s: $x, $u: $x}", "{$b: $x}", "{'a': {'b': $x}}.a"],
        Kind::Timestamp => &["($t + $r)", "($r + $t)", "($t - $r)", "timestamp($s)", "timestamp($i)", "timestamp($t)"],
        Kind::Duration => &["($r + $r)", "($r - $r)", "($t - $t)", "duration($s)", "duration($r)"],
        Kind::Null => &["($b ? null : null)", "{'a': null}.a"],
    }
}
