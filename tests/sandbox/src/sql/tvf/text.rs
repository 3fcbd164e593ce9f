//! Rows of separated text and of JSON files, all columns STRING.

use std::io::{self, BufReader, Read};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringBuilder};
use arrow::datatypes::SchemaRef;
use bytes::{Buf, Bytes};
use datafusion::common::DataFusionError;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::runtime::Handle;

use super::json;
use super::properties::{Compression, Format, S3Properties};
use crate::load::{CsvFields, CsvOptions, CsvRecords};

/// Rows per batch.
const BATCH_ROWS: usize = 4096;
/// Bytes of text after which a batch is full whatever its rows.
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Largest JSON document that is not read by line.
const MAX_DOCUMENT: u64 = 100 * 1024 * 1024;

/// Bytes of a separator: `\t`, `\n`, `\x01` may be spelt out. `None` when it is empty or broken.
pub(super) fn separator(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        match rest.split_first() {
            Some((b't', after)) => (out.push(b'\t'), rest = after).1,
            Some((b'n', after)) => (out.push(b'\n'), rest = after).1,
            Some((b'r', after)) => (out.push(b'\r'), rest = after).1,
            Some((b'x' | b'X', after)) => {
                let digits = std::str::from_utf8(after.get(..2)?).ok()?;
                out.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &after[2..];
            }
            _ => out.push(b'\\'),
        }
    }
    (!out.is_empty()).then_some(out)
}

/// The bytes of an object as a blocking reader: one chunk is held at a time.
pub(super) struct ObjectReader {
    handle: Handle,
    chunks: BoxStream<'static, object_store::Result<Bytes>>,
    current: Bytes,
}

impl ObjectReader {
    pub(super) fn new(handle: Handle, chunks: BoxStream<'static, object_store::Result<Bytes>>) -> Self {
        Self { handle, chunks, current: Bytes::new() }
    }

    /// The text behind the compression.
    pub(super) fn plain(self, compression: Compression) -> io::Result<Box<dyn Read>> {
        let input = BufReader::with_capacity(64 * 1024, self);
        Ok(match compression {
            Compression::Plain => Box::new(input),
            Compression::Gz => Box::new(flate2::bufread::MultiGzDecoder::new(input)),
            Compression::Deflate => Box::new(flate2::bufread::ZlibDecoder::new(input)),
            Compression::Lz4Frame => Box::new(lz4_flex::frame::FrameDecoder::new(input)),
            Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(input)?),
        })
    }
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.handle.block_on(self.chunks.next()) {
                Some(chunk) => self.current = chunk.map_err(io::Error::other)?,
                None => return Ok(0),
            }
        }
        let n = self.current.len().min(buffer.len());
        self.current.copy_to_slice(&mut buffer[..n]);
        Ok(n)
    }
}

/// Text columns being filled.
pub(super) struct Rows<'a> {
    schema: SchemaRef,
    /// Values of the columns taken from the path, at the end of the schema.
    path_values: &'a [String],
    builders: Vec<StringBuilder>,
    rows: usize,
    bytes: usize,
    emit: &'a mut dyn FnMut(RecordBatch) -> bool,
}

/// The reader of the rows is gone.
#[derive(Debug)]
pub(super) enum Stop {
    /// Nobody wants more rows.
    Gone,
    /// The file cannot be read.
    Failed(DataFusionError),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Failed(DataFusionError::Execution(format!("[INTERNAL_ERROR]failed to read the file: {error}")))
    }
}

impl Stop {
    pub(super) fn quality(text: impl std::fmt::Display) -> Self {
        Self::Failed(DataFusionError::Execution(format!("[DATA_QUALITY_ERROR]{text}")))
    }
}

impl<'a> Rows<'a> {
    pub(super) fn new(
        schema: SchemaRef,
        path_values: &'a [String],
        emit: &'a mut dyn FnMut(RecordBatch) -> bool,
    ) -> Self {
        let builders = schema.fields().iter().map(|_| StringBuilder::new()).collect();
        Self { schema, path_values, builders, rows: 0, bytes: 0, emit }
    }

    /// Number of columns that the file itself fills.
    pub(super) fn file_columns(&self) -> usize {
        self.schema.fields().len() - self.path_values.len()
    }

    /// Appends one row; a column without a value is NULL.
    pub(super) fn push<'v>(&mut self, value: impl Fn(usize) -> Option<&'v str>) -> Result<(), Stop> {
        let own = self.file_columns();
        for (i, builder) in self.builders.iter_mut().enumerate() {
            let text = match i.checked_sub(own) {
                Some(at) => self.path_values.get(at).map(String::as_str),
                None => value(i),
            };
            self.bytes += text.map_or(0, str::len);
            builder.append_option(text);
        }
        self.rows += 1;
        if self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    pub(super) fn flush(&mut self) -> Result<(), Stop> {
        if self.rows == 0 {
            return Ok(());
        }
        let columns: Vec<ArrayRef> = self.builders.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|error| Stop::Failed(error.into()))?;
        (self.rows, self.bytes) = (0, 0);
        if (self.emit)(batch) { Ok(()) } else { Err(Stop::Gone) }
    }
}

fn next_record<R: Read>(records: &mut CsvRecords<R>, options: &CsvOptions) -> io::Result<Option<(usize, usize)>> {
    match options.enclose {
        None => records.next(&options.delimiter),
        Some(enclose) => records.next_enclosed(options, enclose),
    }
}

/// Names of the columns of a file: `c1..cn`, or the first line.
pub(super) fn csv_names(input: impl Read, properties: &S3Properties) -> Result<Vec<String>, Stop> {
    let options = &properties.csv;
    let named = matches!(properties.format, Format::Csv { header_lines } if header_lines > 0);
    let mut records = CsvRecords::new(input);
    let mut skip = options.skip_lines;
    while let Some(range) = next_record(&mut records, options)? {
        if skip > 0 {
            skip -= 1;
            continue;
        }
        let mut fields = CsvFields::default();
        fields.split(records.bytes(range), options);
        let name = |i: usize| match named {
            true => String::from_utf8_lossy(fields.get(i)).trim().to_owned(),
            false => format!("c{}", i + 1),
        };
        return Ok((0..fields.len()).map(name).collect());
    }
    Ok(Vec::new())
}

/// Reads all rows of a file. Missing fields are NULL, further ones are passed over.
pub(super) fn read_csv(input: impl Read, properties: &S3Properties, rows: &mut Rows<'_>) -> Result<(), Stop> {
    let options = &properties.csv;
    let mut skip = match properties.format {
        Format::Csv { header_lines } if header_lines > 0 => header_lines,
        _ => options.skip_lines,
    };
    let mut records = CsvRecords::new(input);
    let mut fields = CsvFields::default();
    while let Some(range) = next_record(&mut records, options)? {
        if skip > 0 {
            skip -= 1;
            continue;
        }
        let record = records.bytes(range);
        if record.is_empty() {
            continue;
        }
        if std::str::from_utf8(record).is_err() {
            return Err(Stop::quality("Only support csv data in utf8 codec"));
        }
        fields.split(record, options);
        rows.push(|i| {
            let field = (i < fields.len()).then(|| fields.get(i))?;
            let null = fields.is_null(i) || (options.empty_field_as_null && field.is_empty());
            if null { None } else { std::str::from_utf8(field).ok() }
        })?;
    }
    rows.flush()
}

/// Gives each JSON document of a file to `document` until it answers false.
pub(super) fn json_documents(
    input: impl Read,
    properties: &S3Properties,
    mut document: impl FnMut(&str) -> Result<bool, Stop>,
) -> Result<(), Stop> {
    fn utf8(bytes: &[u8]) -> Result<&str, Stop> {
        std::str::from_utf8(bytes).map_err(|_| Stop::quality("the text of a json file is not utf8"))
    }
    if properties.json.by_line {
        let mut records = CsvRecords::new(input);
        while let Some(range) = records.next(&properties.csv.delimiter)? {
            let line = utf8(records.bytes(range))?;
            if !line.trim().is_empty() && !document(line)? {
                return Ok(());
            }
        }
        return Ok(());
    }
    let mut whole = Vec::new();
    input.take(MAX_DOCUMENT + 1).read_to_end(&mut whole)?;
    if whole.len() as u64 > MAX_DOCUMENT {
        return Err(Stop::quality(format!("a json document is larger than {MAX_DOCUMENT} bytes")));
    }
    let text = utf8(&whole)?;
    if !text.trim().is_empty() {
        document(text)?;
    }
    Ok(())
}

/// Names of the columns of a JSON file: the last steps of jsonpaths, or the keys of the first row.
pub(super) fn json_names(input: impl Read, properties: &S3Properties) -> Result<Vec<String>, Stop> {
    if !properties.json.paths.is_empty() {
        return properties.json.paths.iter().map(|path| json::column_name(path).map_err(Stop::quality)).collect();
    }
    let mut names = Vec::new();
    json_documents(input, properties, |text| {
        json::rows(text, &properties.json, |row| {
            names = json::keys(row)?;
            Ok(false)
        })
    })?;
    Ok(names)
}

/// Reads all rows of a JSON file.
pub(super) fn read_json(input: impl Read, properties: &S3Properties, rows: &mut Rows<'_>) -> Result<(), Stop> {
    let names: Vec<String> =
        rows.schema.fields().iter().take(rows.file_columns()).map(|field| field.name().clone()).collect();
    let reader = json::RowReader::new(&names, &properties.json.paths).map_err(Stop::quality)?;
    json_documents(input, properties, |text| {
        json::rows(text, &properties.json, |row| {
            let values = reader.read(row)?;
            rows.push(|i| values[i].as_deref())?;
            Ok(true)
        })
    })?;
    rows.flush()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::separator;

    #[test]
    fn separators_are_spelt_out_or_plain() {
        for (text, bytes) in [
            (",", &b","[..]),
            ("\\t", b"\t"),
            ("\\x01", b"\x01"),
            ("\\x01\\x02", b"\x01\x02"),
            ("||", b"||"),
            ("\\|", b"\\|"),
        ] {
            assert_eq!(separator(text).as_deref(), Some(bytes), "{text}");
        }
        assert_eq!(separator(""), None);
        assert_eq!(separator("\\xzz"), None);
    }
}
