//! Loads into a table with `"sandbox.discard" = "true"`: the framing of the body is checked and its rows are counted, and
//! nothing is converted or kept. It takes what a client can send without being what a benchmark measures.

use std::io::{BufReader, Read};

use arrow::ipc::{MessageHeader, root_as_message};
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::csv::Records;
use super::error_log::ErrorRows;
use super::header::{Format, LoadPlan, MAX_JSON_BYTES, json_too_large};
use super::intake::Progress;
use super::json::Scanner;
use super::parquet::{broken_parquet, spool};
use super::reply::Failure;
use super::worker::input_failure;

/// Bytes read at once.
const READ_SIZE: usize = 256 * 1024;
/// Largest metadata of an Arrow message.
const MAX_METADATA: usize = 256 * 1024 * 1024;

/// Counts the rows of a body.
pub(super) fn read(input: impl Read, format: Format, plan: &LoadPlan) -> (Result<(), Failure>, Progress) {
    let mut progress = Progress::default();
    let outcome = match format {
        Format::Csv { header_lines } => {
            let skip = if header_lines > 0 { header_lines } else { plan.csv.skip_lines };
            csv(input, skip, plan).map(|rows| progress.rows.total = rows)
        }
        Format::Json if plan.json.by_line => lines(input, &plan.csv.delimiter, &mut progress),
        Format::Json => document(input, plan).map(|rows| progress.rows.total = rows),
        Format::Arrow => messages(input).map(|rows| progress.rows.total = rows),
        Format::Parquet => footer(input).map(|rows| progress.rows.total = rows),
    };
    (outcome, progress)
}

/// What a load that keeps nothing cannot do.
pub(super) fn check(plan: &LoadPlan) -> Result<(), Failure> {
    let computed = plan.columns.iter().flatten().any(|c| matches!(c, super::header::ColumnItem::Mapped { .. }));
    let header = if plan.filter.is_some() {
        "where"
    } else if plan.delete_on.is_some() {
        "delete"
    } else if computed {
        "columns with expressions"
    } else {
        return Ok(());
    };
    let text = format!("the sandbox does not implement the header {header} on a table with sandbox.discard");
    Err(Failure::new("NOT_IMPLEMENTED_ERROR", text))
}

/// Lines that are not empty, behind the first `skip`.
fn csv(mut input: impl Read, skip: usize, plan: &LoadPlan) -> Result<u64, Failure> {
    let options = &plan.csv;
    let ([delimiter], None) = (options.delimiter.as_slice(), options.enclose) else {
        return records(input, skip, plan);
    };
    let mut count = LineCount { delimiter: *delimiter, skip, at_start: true, rows: 0 };
    each_piece(&mut input, |bytes| {
        count.piece(bytes);
        Ok(())
    })?;
    Ok(count.rows + u64::from(!count.at_start && count.skip == 0))
}

/// The same, where a delimiter is longer than a byte or does not count inside of quotes.
fn records(input: impl Read, skip: usize, plan: &LoadPlan) -> Result<u64, Failure> {
    let mut records = Records::new(input);
    let (mut rows, mut seen) = (0, 0);
    loop {
        let range = match plan.csv.enclose {
            None => records.next(&plan.csv.delimiter),
            Some(enclose) => records.next_enclosed(&plan.csv, enclose),
        };
        let Some((begin, end)) = range.map_err(|e| input_failure(&e))? else { return Ok(rows) };
        seen += 1;
        rows += u64::from(seen > skip && end > begin);
    }
}

struct LineCount {
    delimiter: u8,
    skip: usize,
    /// The last byte ended a line.
    at_start: bool,
    rows: u64,
}

impl LineCount {
    fn piece(&mut self, mut bytes: &[u8]) {
        while self.skip > 0 {
            match memchr::memchr(self.delimiter, bytes) {
                Some(at) => {
                    bytes = &bytes[at + 1..];
                    self.skip -= 1;
                    self.at_start = true;
                }
                None => {
                    self.at_start &= bytes.is_empty();
                    return;
                }
            }
        }
        let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return };
        self.rows += u64::from(*first == self.delimiter && !self.at_start);
        self.rows += line_ends(bytes, self.delimiter);
        self.at_start = *last == self.delimiter;
    }
}

/// Delimiters that another byte precedes. The inner sums fit a byte, so that the loop becomes wide instructions.
fn line_ends(bytes: &[u8], delimiter: u8) -> u64 {
    let mut total = 0;
    let before = &bytes[..bytes.len() - 1];
    for (left, right) in before.chunks(255).zip(bytes[1..].chunks(255)) {
        let ends: u8 = left.iter().zip(right).map(|(l, r)| u8::from(*r == delimiter) & u8::from(*l != delimiter)).sum();
        total += u64::from(ends);
    }
    total
}

/// Lines of JSON: each begins and ends as an object or an array does.
fn lines(input: impl Read, delimiter: &[u8], progress: &mut Progress) -> Result<(), Failure> {
    let mut records = Records::new(input);
    let mut errors = ErrorRows::default();
    while let Some(range) = records.next(delimiter).map_err(|e| input_failure(&e))? {
        let line = records.bytes(range).trim_ascii();
        let (Some(first), Some(last)) = (line.first(), line.last()) else { continue };
        progress.rows.total += 1;
        if !matches!((first, last), (b'{', b'}') | (b'[', b']')) {
            progress.rows.filtered += 1;
            errors.push("Parse json data failed, the line is no object", &String::from_utf8_lossy(line));
        }
    }
    progress.errors = errors;
    Ok(())
}

/// One document: an array of rows or a single one.
fn document(input: impl Read, plan: &LoadPlan) -> Result<u64, Failure> {
    let mut bytes = Vec::new();
    input.take(MAX_JSON_BYTES + 1).read_to_end(&mut bytes).map_err(|e| input_failure(&e))?;
    if bytes.len() as u64 > MAX_JSON_BYTES {
        return Err(json_too_large(bytes.len() as u64).into());
    }
    let broken = |text: &str| Failure::new("DATA_QUALITY_ERROR", format!("Parse json data failed, {text}"));
    let text = std::str::from_utf8(&bytes).map_err(|_| broken("the text is not utf8"))?;
    let mut scanner = Scanner::new(text);
    if scanner.at_end() {
        return Ok(0);
    }
    if !plan.json.strip_outer_array {
        scanner.raw().map_err(|e| broken(e.what))?;
        return if scanner.at_end() { Ok(1) } else { Err(broken("there is text behind the document")) };
    }
    if !scanner.enter_array() {
        return Err(broken("the document is no array"));
    }
    let mut rows = 0;
    while scanner.next_element(rows == 0).map_err(|e| broken(e.what))? {
        scanner.raw().map_err(|e| broken(e.what))?;
        rows += 1;
    }
    if scanner.at_end() { Ok(rows) } else { Err(broken("there is text behind the document")) }
}

fn each_piece(input: &mut impl Read, mut piece: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut buffer = vec![0; READ_SIZE];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => piece(&buffer[..n])?,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(input_failure(&e)),
        }
    }
}

/// The messages of an Arrow stream: their lengths and the rows they announce.
fn messages(input: impl Read) -> Result<u64, Failure> {
    let broken = |text: &str| Failure::new("INTERNAL_ERROR", format!("failed to read the arrow stream: {text}"));
    let mut input = BufReader::with_capacity(READ_SIZE, input);
    let mut metadata = Vec::new();
    let mut sink = vec![0; READ_SIZE];
    let (mut rows, mut schema) = (0, false);
    loop {
        let mut length = [0; 4];
        match input.read(&mut length[..1]).map_err(|e| input_failure(&e))? {
            // A stream may end without its mark.
            0 if schema => return Ok(rows),
            0 => return Err(broken("no schema")),
            _ => input.read_exact(&mut length[1..]).map_err(|e| input_failure(&e))?,
        }
        // Since 0.15 a mark precedes the length.
        if length == [0xff; 4] {
            input.read_exact(&mut length).map_err(|e| input_failure(&e))?;
        }
        let length = u32::from_le_bytes(length) as usize;
        if length == 0 {
            return if schema { Ok(rows) } else { Err(broken("no schema")) };
        }
        if length > MAX_METADATA {
            return Err(broken("metadata larger than 256 MiB"));
        }
        metadata.resize(length, 0);
        input.read_exact(&mut metadata).map_err(|e| input_failure(&e))?;
        let message = root_as_message(&metadata).map_err(|e| broken(&e.to_string()))?;
        match message.header_type() {
            MessageHeader::Schema if !schema => schema = true,
            MessageHeader::RecordBatch if schema => {
                let batch = message.header_as_record_batch().ok_or_else(|| broken("a record batch without header"))?;
                rows += u64::try_from(batch.length()).map_err(|_| broken("a negative number of rows"))?;
            }
            MessageHeader::DictionaryBatch if schema => {}
            other => return Err(broken(&format!("unexpected message {other:?}"))),
        }
        let mut left = usize::try_from(message.bodyLength()).map_err(|_| broken("a negative length"))?;
        while left > 0 {
            let most = left.min(sink.len());
            match input.read(&mut sink[..most]).map_err(|e| input_failure(&e))? {
                0 => return Err(broken("a body cut short")),
                n => left -= n,
            }
        }
    }
}

/// Rows that the footer of a Parquet file announces.
fn footer(input: impl Read) -> Result<u64, Failure> {
    let file = spool(input)?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| broken_parquet(&e))?;
    u64::try_from(builder.metadata().file_metadata().num_rows()).map_err(|_| broken_parquet(&"negative row count"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn plan(format: Format, pairs: &[(&str, &str)]) -> LoadPlan {
        let headers: HeaderMap = pairs
            .iter()
            .map(|(n, v)| (n.parse::<HeaderName>().expect("name"), HeaderValue::from_str(v).expect("value")))
            .collect();
        LoadPlan::parse(&headers, format).expect("plan")
    }

    /// Gives so many bytes at once, so that boundaries fall everywhere.
    struct Steps<'a>(&'a [u8], usize);

    impl Read for Steps<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let n = self.0.len().min(self.1).min(buffer.len());
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn rows(bytes: &[u8], format: Format, pairs: &[(&str, &str)]) -> (u64, u64) {
        let plan = plan(format, pairs);
        let mut found = None;
        for step in [1, 2, 3, 7, 1 << 20] {
            let (outcome, progress) = read(Steps(bytes, step), format, &plan);
            outcome.expect("rows");
            let counts = (progress.rows.total, progress.rows.filtered);
            assert_eq!(*found.get_or_insert(counts), counts, "steps of {step}");
        }
        found.expect("counts")
    }

    const CSV: Format = Format::Csv { header_lines: 0 };

    #[test]
    fn lines_are_counted_without_the_empty_ones() {
        let many = "1,2\n".repeat(1000);
        for (text, pairs, expected) in [
            ("", vec![], 0),
            ("a", vec![], 1),
            ("a\n", vec![], 1),
            ("\n\na\n\n\nb\n\nc", vec![], 3),
            (many.as_str(), vec![], 1000),
            (many.as_str(), vec![("skip_lines", "10")], 990),
            ("a\nb", vec![("skip_lines", "2")], 0),
            ("\n\nb", vec![("skip_lines", "2")], 1),
            ("a||b||||c", vec![("line_delimiter", "||")], 3),
            ("'a\nb'\tc\nd", vec![("enclose", "'")], 2),
        ] {
            assert_eq!(rows(text.as_bytes(), CSV, &pairs), (expected, 0), "{text:.20} {pairs:?}");
        }
        assert_eq!(rows(b"a,b\n1,2\n", Format::Csv { header_lines: 1 }, &[]), (1, 0));
    }

    #[test]
    fn json_lines_begin_and_end_as_objects() {
        assert_eq!(rows(b"{\"a\":1}\n \n{\"a\":2} \n{\"a\"\nx}\n", Format::Json, &[]), (4, 2));
        let array = [("strip_outer_array", "true")];
        assert_eq!(rows(b"[{\"a\":[1,2]},{}]", Format::Json, &array), (2, 0));
        let (outcome, _) = read(&b"[{\"a\":[1,2]},{}"[..], Format::Json, &plan(Format::Json, &array));
        assert_eq!(outcome.expect_err("cut").code, "DATA_QUALITY_ERROR");
        for (body, pairs) in [
            (&b"[{}] [{}]"[..], &array[..]),
            (b"{} {}", &[("read_json_by_line", "false"), ("strip_outer_array", "false")]),
        ] {
            let (outcome, _) = read(body, Format::Json, &plan(Format::Json, pairs));
            assert_eq!(outcome.expect_err("two documents").code, "DATA_QUALITY_ERROR");
        }
    }

    #[test]
    fn arrow_messages_are_measured_not_decoded() {
        use std::sync::Arc;

        use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};

        let columns: [(&str, ArrayRef); 2] = [
            ("a", Arc::new(Int64Array::from_iter_values(0..1000))),
            ("b", Arc::new(StringArray::from_iter_values((0..1000).map(|i| i.to_string())))),
        ];
        let batch = RecordBatch::try_from_iter(columns).expect("batch");
        let mut bytes = Vec::new();
        let mut writer = arrow::ipc::writer::StreamWriter::try_new(&mut bytes, &batch.schema()).expect("writer");
        for _ in 0..3 {
            writer.write(&batch).expect("write");
        }
        writer.finish().expect("finish");
        drop(writer);
        assert_eq!(rows(&bytes, Format::Arrow, &[]), (3000, 0));
        for cut in [bytes.len() / 2, 3] {
            let (outcome, _) = read(&bytes[..cut], Format::Arrow, &plan(Format::Arrow, &[]));
            assert_eq!(outcome.expect_err("cut").code, "INTERNAL_ERROR");
        }
        let (outcome, _) = read(&b""[..], Format::Arrow, &plan(Format::Arrow, &[]));
        assert!(outcome.is_err());
    }
}
