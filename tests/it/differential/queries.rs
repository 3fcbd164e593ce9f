//! Random queries, in the dialect of DataFusion.

use super::random::Random;

/// Suffixes of the tables.
pub const TABLES: [&str; 4] = ["0", "1", "2", EMPTY];

/// The table without rows.
pub const EMPTY: &str = "3";

/// Tables that a query reads; that without rows seldom.
const READ: &[&str] = &["0", "1", "2", "0", "1", "2", "0", "1", "2", EMPTY];

/// A query; `{}` stands for the side whose tables it reads.
#[derive(Debug)]
pub struct Query {
    /// SELECT … without ORDER BY and LIMIT.
    body: String,
    /// Sort keys, which are the first columns.
    pub order: Vec<String>,
    pub limit: Option<usize>,
}

impl Query {
    /// Without ORDER BY and LIMIT.
    pub fn bare(&self, side: &str) -> String {
        self.body.replace("{}", side)
    }

    pub fn text(&self, side: &str) -> String {
        let mut sql = self.bare(side);
        if !self.order.is_empty() {
            sql.push_str(&format!(" ORDER BY {}", self.order.join(", ")));
        }
        if let Some(limit) = self.limit {
            sql.push_str(&format!(" LIMIT {limit}"));
        }
        sql
    }
}

/// Columns that compare and sort alike in both engines.
const EXACT: &[&str] = &["i8", "i16", "i32", "i64", "i128", "dec", "wide", "dt", "ts", "d0", "d3", "c", "v", "s"];
const ALL: &[&str] = &[
    "k", "b", "i8", "i16", "i32", "i64", "i128", "f", "d", "dec", "wide", "huge", "dt", "ts", "d0", "d3", "tz", "ip4",
    "ip6", "c", "v", "s", "tags", "m", "st", "j", "va",
];
const GROUPED: &[&str] =
    &["b", "i8", "i16", "i32", "i128", "dec", "huge", "dt", "ts", "d0", "d3", "tz", "ip4", "c", "v", "s", "d", "f"];
const TEXTS: &[&str] = &["c", "v", "s"];
const INTS: &[&str] = &["i8", "i16", "i32", "i64", "k"];

#[derive(Debug)]
pub struct Generator {
    random: Random,
}

impl Generator {
    pub fn new(random: Random) -> Self {
        Self { random }
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        self.random.pick(from)
    }

    pub fn query(&mut self) -> Query {
        match self.random.below(11) {
            0..=3 => self.rows(),
            4..=7 => self.aggregate(),
            8 => self.nested(),
            _ => self.join(),
        }
    }

    /// Filters, projections, limits, top-k.
    fn rows(&mut self) -> Query {
        let table = self.pick(READ);
        let condition =
            if self.random.percent(85) { format!(" WHERE {}", self.condition("", 3)) } else { String::new() };
        let (mut outputs, mut order, mut limit) = (Vec::new(), Vec::new(), None);
        match self.random.below(3) {
            0 => {
                let keys = 1 + self.random.below(2);
                for _ in 0..keys {
                    let columns = if self.random.percent(85) { EXACT } else { &["d", "f", "b"] };
                    let column = self.pick(columns);
                    if outputs.contains(&column.to_string()) {
                        continue;
                    }
                    outputs.push(column.to_string());
                    order.push(format!(
                        "{column}{}{}",
                        self.pick(&["", " DESC", " ASC"]),
                        self.pick(&["", " NULLS FIRST", " NULLS LAST"])
                    ));
                }
                limit = Some(self.random.below(12));
            }
            1 => limit = Some(self.random.below(15)),
            _ => {}
        }
        for _ in 0..1 + self.random.below(4) {
            let output = match self.random.percent(70) {
                true => self.pick(ALL).to_string(),
                false => self.value(""),
            };
            if !outputs.contains(&output) {
                outputs.push(output);
            }
        }
        Query { body: format!("SELECT {} FROM {{}}{table}{condition}", outputs.join(", ")), order, limit }
    }

    fn aggregate(&mut self) -> Query {
        let table = self.pick(READ);
        let condition =
            if self.random.percent(60) { format!(" WHERE {}", self.condition("", 2)) } else { String::new() };
        let mut groups: Vec<String> = Vec::new();
        for _ in 0..self.random.below(3) {
            let group = match self.random.percent(75) {
                true => self.pick(GROUPED).to_string(),
                false => self.value(""),
            };
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        if !groups.is_empty() && self.random.percent(15) {
            return Query {
                body: format!("SELECT DISTINCT {} FROM {{}}{table}{condition}", groups.join(", ")),
                order: vec![],
                limit: None,
            };
        }
        let aggregates: Vec<String> =
            (0..1 + self.random.below(3)).map(|i| format!("{} AS a{i}", self.call(""))).collect();
        let outputs: Vec<String> = groups
            .iter()
            .enumerate()
            .map(|(i, group)| format!("{group} AS g{i}"))
            .chain(aggregates.iter().cloned())
            .collect();
        let mut body = format!("SELECT {} FROM {{}}{table}{condition}", outputs.join(", "));
        let (mut order, mut limit) = (vec![], None);
        if !groups.is_empty() {
            body.push_str(&format!(" GROUP BY {}", groups.join(", ")));
            if self.random.percent(25) {
                let least = self.random.below(3);
                body.push_str(&format!(" HAVING count(*) > {least}"));
            }
            if self.random.percent(40) {
                order = vec![format!("g0{}", self.pick(&["", " DESC NULLS LAST", " NULLS FIRST"]))];
                limit = Some(1 + self.random.below(6));
            }
        }
        Query { body, order, limit }
    }

    /// Queries over queries: DISTINCT, top-k and aggregates below aggregates and conditions, UNION ALL.
    fn nested(&mut self) -> Query {
        let (a, b) = (self.pick(READ), self.pick(READ));
        let (one, two) = (self.pick(GROUPED), self.pick(EXACT));
        let condition = self.condition("", 1);
        let least = self.random.below(3);
        let body = match self.random.below(6) {
            0 => format!(
                "SELECT count(*) AS n, min(y) AS m FROM (SELECT DISTINCT {one} AS x, {two} AS y FROM {{}}{a}) q"
            ),
            1 => format!(
                "SELECT x, n FROM (SELECT {one} AS x, count(*) AS n FROM {{}}{a} WHERE {condition} GROUP BY {one}) q WHERE n > {least}"
            ),
            2 => format!(
                "SELECT sum(k) AS s, max(y) AS m FROM (SELECT k, {two} AS y FROM {{}}{a} ORDER BY k DESC LIMIT {}) q",
                least * 7
            ),
            3 => format!(
                "SELECT k, {two} FROM {{}}{a} WHERE {condition} UNION ALL SELECT k, {two} FROM {{}}{b} WHERE k < 9"
            ),
            4 => format!(
                "SELECT q.x, q.n, y.v FROM (SELECT {two} AS x, count(*) AS n FROM {{}}{a} GROUP BY {two}) q JOIN {{}}{b} y ON q.x = y.{two}"
            ),
            _ => format!("SELECT k FROM {{}}{a} WHERE k > (SELECT count(*) FROM {{}}{b} WHERE {condition}) - 10"),
        };
        Query { body, order: vec![], limit: None }
    }

    fn join(&mut self) -> Query {
        let (a, b) = (self.pick(READ), self.pick(READ));
        let key = self.pick(&["k", "i8", "i16", "i32", "dec", "dt", "v", "s", "ts", "c", "i128", "d3", "b"]);
        let more = if self.random.percent(40) {
            format!(" AND x.{} <> y.{}", self.pick(&["i32"]), self.pick(&["i32"]))
        } else {
            String::new()
        };
        let condition =
            if self.random.percent(50) { format!(" WHERE {}", self.condition("x.", 2)) } else { String::new() };
        match self.random.below(9) {
            0 => {
                let body = format!(
                    "SELECT x.k, y.k AS yk, y.v FROM {{}}{a} x JOIN {{}}{b} y ON x.{key} = y.{key}{more}{condition}"
                );
                Query { body, order: vec![], limit: None }
            }
            1 => {
                let body =
                    format!("SELECT x.k AS o, y.s FROM {{}}{a} x JOIN {{}}{b} y ON x.{key} = y.{key}{more}{condition}");
                Query { body, order: vec!["o DESC".to_string()], limit: Some(1 + self.random.below(8)) }
            }
            2 => {
                let body = format!(
                    "SELECT count(*), count(y.k) FROM {{}}{a} x LEFT JOIN {{}}{b} y ON x.{key} = y.{key}{more}{condition}"
                );
                Query { body, order: vec![], limit: None }
            }
            3 => {
                let not = self.pick(&["", "NOT "]);
                let inner = self.condition("y.", 1);
                let body = format!(
                    "SELECT count(*), min(x.k) FROM {{}}{a} x WHERE {not}EXISTS (SELECT 1 FROM {{}}{b} y WHERE x.{key} = y.{key} AND {inner})"
                );
                Query { body, order: vec![], limit: None }
            }
            5 => {
                let side = self.pick(&["RIGHT", "FULL"]);
                let body = format!(
                    "SELECT count(*), count(x.k), max(y.k) FROM {{}}{a} x {side} JOIN {{}}{b} y ON x.{key} = y.{key}{more}{condition}"
                );
                Query { body, order: vec![], limit: None }
            }
            6 => {
                let (c, also) = (self.pick(READ), self.pick(&["b", "dt", "v"]));
                let body = format!(
                    "SELECT z.{also} AS g0, count(*) AS a0, min(x.k) AS a1 FROM {{}}{a} x JOIN {{}}{b} y ON x.{key} = y.{key} JOIN {{}}{c} z ON z.k = y.k AND z.{also} = x.{also} GROUP BY z.{also}"
                );
                Query { body, order: vec![], limit: None }
            }
            7 => {
                let body = format!(
                    "SELECT x.k AS o, y.k AS p FROM {{}}{a} x JOIN {{}}{b} y ON x.{key} = y.{key} AND x.i8 = y.i8{condition}"
                );
                let order = vec!["o DESC NULLS LAST".to_string(), "p".to_string()];
                Query { body, order, limit: Some(1 + self.random.below(8)) }
            }
            4 => {
                let not = self.pick(&["", "NOT "]);
                let body = format!(
                    "SELECT x.k, x.v FROM {{}}{a} x WHERE x.{key} {not}IN (SELECT y.{key} FROM {{}}{b} y WHERE y.k < 20)"
                );
                Query { body, order: vec![], limit: None }
            }
            _ => {
                let group = self.pick(&["b", "i8", "dt", "v", "c"]);
                let (one, two) = (self.call("x."), self.call("y."));
                let body = format!(
                    "SELECT x.{group} AS g0, {one} AS a0, {two} AS a1 FROM {{}}{a} x JOIN {{}}{b} y ON x.{key} = y.{key}{more}{condition} GROUP BY x.{group}"
                );
                Query { body, order: vec![], limit: None }
            }
        }
    }

    /// An aggregate; sums are of what cannot overflow, and of nothing whose order of additions counts.
    fn call(&mut self, of: &str) -> String {
        let filter =
            if self.random.percent(20) { format!(" FILTER (WHERE {})", self.condition(of, 1)) } else { String::new() };
        let call = match self.random.below(9) {
            0 => "count(*)".to_string(),
            1 => format!(
                "count({of}{})",
                self.pick(&["b", "f", "d", "v", "wide", "i128", "dt", "huge", "tz", "ip6", "tags", "j"])
            ),
            2 => format!("count(DISTINCT {of}{})", self.pick(&["i8", "v", "dt", "dec", "b", "d3", "ip4"])),
            3 => format!("min({of}{})", self.pick(EXACT)),
            4 => format!("max({of}{})", self.pick(EXACT)),
            5 => format!("sum({of}{})", self.pick(&["i8", "i16", "i32", "dec", "i64", "k"])),
            6 => format!("avg({of}{})", self.pick(&["i8", "i16", "i32", "dec", "k"])),
            7 => format!("sum({of}i16 * 3 - {of}i8)"),
            // Not the least and greatest of floats: with NaN among them DataFusion's answer depends on the order of rows.
            _ => format!("count({of}{})", self.pick(&["d", "s", "c", "ts"])),
        };
        format!("{call}{filter}")
    }

    /// A value of some type.
    fn value(&mut self, of: &str) -> String {
        let text = self.pick(TEXTS);
        let int = self.pick(&["i8", "i16", "i32", "k"]);
        match self.random.below(20) {
            0 => format!("{of}{int} % 3"),
            1 => format!("{of}{int} / 2"),
            2 => format!("CAST({of}{int} AS BIGINT) * 2 + 1"),
            3 => format!("substr({of}{text}, 1, 2)"),
            4 => format!("character_length({of}{text})"),
            5 => format!("octet_length({of}{text})"),
            6 => format!("btrim({of}{text})"),
            7 => format!("{of}v || {of}s"),
            8 => format!("concat({of}c, '-', {of}s)"),
            9 => format!(
                "date_part('{}', {of}{})",
                self.pick(&["year", "month", "day", "quarter"]),
                self.pick(&["dt", "ts"])
            ),
            10 => format!(
                "date_trunc('{}', {of}ts)",
                self.pick(&["month", "day", "hour", "year", "quarter", "minute", "second"])
            ),
            11 => format!("CASE WHEN {} THEN {of}i8 ELSE {of}i16 END", self.condition(of, 1)),
            12 => format!("coalesce({of}i8, {of}i16, 5)"),
            13 => format!("{of}dec * 2 - 1.5"),
            14 => format!("upper({of}{text})"),
            15 => format!("{}({of}{text})", self.pick(&["ltrim", "rtrim", "trim"])),
            16 => format!(
                "date_part('{}', {of}{})",
                self.pick(&["hour", "minute", "second"]),
                self.pick(&["ts", "d0", "d3"])
            ),
            17 if self.random.percent(50) => format!("abs({of}dec)"),
            17 => format!("abs(CAST({of}i16 AS INT))"),
            18 => format!("substr({of}{text}, {})", self.pick(&["2", "1, 0", "3, 1", "0", "-1"])),
            _ => format!("nullif({of}{text}, 'a')"),
        }
    }

    fn condition(&mut self, of: &str, depth: usize) -> String {
        if depth > 0 && self.random.percent(55) {
            let (a, b) = (self.condition(of, depth - 1), self.condition(of, depth - 1));
            return match self.random.below(6) {
                0 | 1 => format!("({a} AND {b})"),
                2 | 3 => format!("({a} OR {b})"),
                4 => format!("(NOT {a})"),
                _ => format!("(CASE WHEN {a} THEN {b} ELSE {} END)", self.condition(of, 0)),
            };
        }
        let op = self.pick(&["=", "<>", "<", "<=", ">", ">="]);
        let ordered = self.pick(&["<", "<=", ">", ">="]);
        let not = self.pick(&["", "", "NOT "]);
        match self.random.below(20) {
            0 => format!(
                "{of}{} {op} {}",
                self.pick(INTS),
                self.pick(&["0", "1", "2", "-1", "127", "100", "2147483647", "-9223372036854775807"])
            ),
            1 => format!("{of}i128 {op} {}", self.pick(&["0", "9", "10", "-1"])),
            2 => format!(
                "{of}{} {op} {}",
                self.pick(&["d", "f"]),
                self.pick(&["0.0", "1.5", "-1.5", "2.5", "CAST('NaN' AS DOUBLE)", "1e300"])
            ),
            3 => format!(
                "{of}{} {op} {}",
                self.pick(&["dec", "wide"]),
                self.pick(&["0", "1.5", "-1.50", "10.5", "0.015"])
            ),
            4 => format!("{of}dt {op} DATE '{}'", self.pick(&["2024-02-29", "1970-01-01", "0001-01-01", "9999-12-31"])),
            5 => format!(
                "{of}ts {op} TIMESTAMP '{}'",
                self.pick(&[
                    "2024-02-29 12:34:56.789012",
                    "2024-02-29 00:00:00",
                    "1969-12-31 23:59:59.999999",
                    "1700-01-01 00:00:00"
                ])
            ),
            6 => format!(
                "{of}{} {op} '{}'",
                self.pick(TEXTS),
                self.pick(&["", "a", "a ", "A", "ab", "数据", "it''s", "back\\slash", "z"])
            ),
            7 => format!(
                "{of}{} {not}LIKE '{}'",
                self.pick(TEXTS),
                self.pick(&["a%", "%b", "_", "a_b", "%\\%", "%a%", "a\\_b", "%", "", "__", "数%"])
            ),
            8 => format!(
                "{of}{} {not}IN ({})",
                self.pick(INTS),
                self.pick(&["1, 2, 3", "0", "127, -128, 5", "1, NULL", "1, 2, 3, 4, 5, 6, 7"])
            ),
            9 => format!("{of}{} {not}IN ('a', '{}')", self.pick(TEXTS), self.pick(&["", "A", "数据", "ab"])),
            10 => format!(
                "{of}{} IS {not}NULL",
                self.pick(&["b", "i8", "i128", "f", "d", "dec", "dt", "ts", "c", "v", "s"])
            ),
            11 => format!(
                "{of}{} {not}BETWEEN {} AND {}",
                self.pick(&["i8", "i16", "i32", "i64", "dec"]),
                self.pick(&["-5", "0", "1"]),
                self.pick(&["2", "50", "127"])
            ),
            12 => format!(
                "{of}b{}",
                self.pick(&["", " IS TRUE", " IS NOT TRUE", " IS FALSE", " IS NOT FALSE", " IS UNKNOWN", " = false"])
            ),
            13 => format!("{of}{} {op} {of}{}", self.pick(&["i8", "i16"]), self.pick(&["i32", "i64", "i16"])),
            14 => format!("({of}v {} {of}s)", self.pick(&["=", "<", "IS DISTINCT FROM", "IS NOT DISTINCT FROM", ">="])),
            16 => format!(
                "{of}{} {op} TIMESTAMP '{}'",
                self.pick(&["d0", "d3"]),
                self.pick(&[
                    "2024-02-29 12:34:56.789",
                    "2024-02-29 12:34:56",
                    "1970-01-01 00:00:00",
                    "1969-12-31 23:59:59.9995"
                ])
            ),
            17 => match self.random.below(4) {
                0 => format!("{of}ip4 {not}IN ('10.0.0.1', '9.0.0.1')"),
                1 => format!("{of}ip6 {op} '::1'"),
                2 => format!(
                    "{of}{} IS {not}NULL",
                    self.pick(&["huge", "d0", "d3", "tz", "ip4", "ip6", "j", "va", "tags", "m", "st"])
                ),
                _ => format!("{of}huge {op} 1.5"),
            },
            // Longer than one list of a statement.
            18 => match self.random.percent(10) {
                true => {
                    let values: Vec<String> = (0..1_200).map(|value| (value * 3).to_string()).collect();
                    format!("{of}{} {not}IN ({})", self.pick(&["k", "i16", "i64"]), values.join(", "))
                }
                false => format!("{of}{} {op} {of}{}", self.pick(&["dec", "wide"]), self.pick(&["wide", "dec"])),
            },
            15 => {
                let (value, against) = match self.random.below(7) {
                    0 => (format!("{of}i32 % 2"), "1"),
                    1 => (format!("character_length({of}v)"), "2"),
                    2 => (format!("octet_length({of}s)"), "3"),
                    3 => (format!("date_part('year', {of}dt)"), "2024"),
                    4 => (format!("CAST({of}i16 AS BIGINT) + {of}i8"), "3"),
                    5 => (format!("date_part('month', {of}ts)"), "2"),
                    _ => (format!("{of}dec * 2"), "3.0"),
                };
                format!("{value} {op} {against}")
            }
            _ => match self.random.below(7) {
                5 => format!("ends_with({of}{}, '{}')", self.pick(TEXTS), self.pick(&["", "b", "%", "据", "a "])),
                6 => format!("{of}v {not}BETWEEN 'A' AND 'ab'"),
                0 => format!("starts_with({of}v, '{}')", self.pick(&["a", "100%", "back"])),
                1 => format!("substr({of}s, 1, 1) = '{}'", self.pick(&["a", "z", "é"])),
                2 => format!("upper({of}v) = 'A'"),
                3 => format!("btrim({of}v) {ordered} 'a'"),
                _ => format!("{of}dt {ordered} CAST({of}ts AS DATE)"),
            },
        }
    }
}
