#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

fn options(separator: &[u8], delimiter: &[u8]) -> CsvOptions {
    CsvOptions {
        separator: separator.to_vec(),
        delimiter: delimiter.to_vec(),
        enclose: None,
        escape: None,
        skip_lines: 0,
        trim_double_quotes: false,
        empty_field_as_null: false,
    }
}

fn enclosed(enclose: u8) -> CsvOptions {
    CsvOptions { enclose: Some(enclose), escape: Some(b'\\'), trim_double_quotes: true, ..options(b",", b"\n") }
}

/// Gives its bytes one at a time, so that every boundary is met.
struct Dripping<'a>(&'a [u8]);

impl Read for Dripping<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.0.len().min(1);
        buffer[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

fn rows_from(input: impl Read, options: &CsvOptions) -> Vec<Vec<String>> {
    let mut records = Records::new(input);
    let mut fields = Fields::default();
    let mut rows = Vec::new();
    loop {
        let range = match options.enclose {
            None => records.next(&options.delimiter),
            Some(enclose) => records.next_enclosed(options, enclose),
        };
        let Some(range) = range.expect("read") else { return rows };
        fields.split(records.bytes(range), options);
        rows.push((0..fields.len()).map(|i| String::from_utf8_lossy(fields.get(i)).into_owned()).collect());
    }
}

/// Rows of `text`, checked to be the same however the bytes arrive.
fn rows(text: &str, options: &CsvOptions) -> Vec<Vec<String>> {
    let whole = rows_from(text.as_bytes(), options);
    assert_eq!(whole, rows_from(Dripping(text.as_bytes()), options), "{text:?}");
    whole
}

#[test]
fn the_last_delimiter_is_optional_and_fields_may_be_empty() {
    let tabs = options(b"\t", b"\n");
    assert_eq!(rows("1\ta\n2\t\n", &tabs), [["1", "a"], ["2", ""]]);
    assert_eq!(rows("1\ta\n2\tb", &tabs), [["1", "a"], ["2", "b"]]);
    assert_eq!(rows("", &tabs), Vec::<Vec<String>>::new());
}

#[test]
fn separators_of_several_bytes_may_overlap_their_own_start() {
    let wide = options(b"||", b"\x01\x02");
    assert_eq!(rows("a|||b\x01c||d\x01\x02e||f", &wide), [["a", "|b\u{1}c", "d"].to_vec(), ["e", "f"].to_vec()]);
}

#[test]
fn double_quotes_are_data_unless_trimmed() {
    let plain = options(b",", b"\n");
    assert_eq!(rows("\"a\",b\n", &plain), [["\"a\"", "b"]]);
    let trimmed = CsvOptions { trim_double_quotes: true, ..plain };
    assert_eq!(rows("\"a\",\"\n", &trimmed), [["a", "\""]]);
}

#[test]
fn enclosed_fields_hold_separators_and_delimiters() {
    let quotes = enclosed(b'"');
    assert_eq!(rows("1,\"a,b\nc\",2\n3,d,4\n", &quotes), [["1", "a,b\nc", "2"], ["3", "d", "4"]]);
    assert_eq!(rows("\"\",\"x\"", &quotes), [["", "x"]]);
}

#[test]
fn escaped_and_doubled_enclosing_bytes_are_data() {
    let quotes = enclosed(b'"');
    assert_eq!(rows("\"a\\\"b\",\"c\"\"d\"\n", &quotes), [["a\"b", "c\"d"]]);
    assert_eq!(rows("\"a\\\\\",b\n", &quotes), [["a\\", "b"]]);
    // A backslash before anything else stays.
    assert_eq!(rows("\"a\\nb\",c\n", &quotes), [["a\\nb", "c"]]);
}

#[test]
fn enclosing_double_quotes_stay_without_trim_double_quotes() {
    let kept = CsvOptions { trim_double_quotes: false, ..enclosed(b'"') };
    assert_eq!(rows("\"a,b\",c\n", &kept), [["\"a,b\"", "c"]]);
    let single = CsvOptions { trim_double_quotes: false, ..enclosed(b'\'') };
    assert_eq!(rows("'a,b',c\n", &single), [["a,b", "c"]]);
}

#[test]
fn an_enclosing_byte_inside_a_bare_field_is_data() {
    assert_eq!(rows("a\"b,c\"\nd,e\n", &enclosed(b'"')), [["a\"b", "c\""], ["d", "e"]]);
}

proptest::proptest! {
    #[test]
    fn enclosed_texts_round_trip(texts in proptest::collection::vec("[a\",\\\\\n']{0,6}x{0,80}[a\",\\\\\n']{0,6}", 1..4)) {
        let quote = |t: &String| format!("\"{}\"", t.replace('\\', "\\\\").replace('"', "\\\""));
        let line: Vec<String> = texts.iter().map(quote).collect();
        let read = rows(&format!("{}\n", line.join(",")), &enclosed(b'"'));
        // A lone quote before a separator inside a field cannot be told from its end; the escape keeps it inside.
        proptest::prop_assert_eq!(read, vec![texts]);
    }
}

proptest::proptest! {
    #[test]
    fn records_end_where_they_do_byte_by_byte(text in "[ab,\"\\\\\r\n]{0,40}", complete: bool, escaped: bool) {
        let options = CsvOptions { escape: escaped.then_some(b'\\'), ..enclosed(b'"') };
        let bytes = text.as_bytes();
        let limit = if complete { bytes.len() } else { bytes.len().saturating_sub(3) };
        let scan = || EnclosedScan { at: 0, inside: false, field_start: true };
        let (mut quick, mut slow) = (scan(), scan());
        let found = quick.advance_by_bytes(bytes, limit, &options, b'"', [b',', b'\n']);
        proptest::prop_assert_eq!(found, slow.advance_by_texts(bytes, limit, &options, b'"'));
        proptest::prop_assert_eq!((quick.at, quick.inside), (slow.at, slow.inside));
    }
}

#[test]
fn a_carriage_return_before_the_line_feed_is_no_data() {
    let plain = options(b",", b"\n");
    assert_eq!(without_return(b"a,b\r", &plain), b"a,b");
    assert_eq!(without_return(b"a\rb", &plain), b"a\rb");
    assert_eq!(without_return(b"a\r", &options(b",", b"||")), b"a\r");
    let rows = rows_from(Dripping(b"'a,\r\nb',c\r\n'd',e\r\n"), &enclosed(b'\''));
    assert_eq!(rows, [vec!["a,\r\nb", "c\r"], vec!["d", "e\r"]], "the record itself keeps it");
}
