//! Bodies of loads that are not text: compressed, Arrow IPC and Parquet, made from the text of the case.

use std::io::Write;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::json::ReaderBuilder;
use datafusion::parquet::arrow::ArrowWriter;

/// The bytes of `text` in the encoding that `how` names: `gzip`, `deflate`, `zstd`, `lz4`, `hex`, or
/// `arrow NAME:TYPE …` and `parquet NAME:TYPE …` over one JSON object per line.
pub fn encode(how: &str, text: &str) -> Vec<u8> {
    let (kind, rest) = how.split_once(' ').unwrap_or((how, ""));
    match kind {
        "gzip" => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            out.write_all(text.as_bytes()).expect("memory");
            out.finish().expect("memory")
        }
        "deflate" => {
            let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            out.write_all(text.as_bytes()).expect("memory");
            out.finish().expect("memory")
        }
        "zstd" => zstd::encode_all(text.as_bytes(), 0).expect("memory"),
        "lz4" => {
            let mut out = lz4_flex::frame::FrameEncoder::new(Vec::new());
            out.write_all(text.as_bytes()).expect("memory");
            out.finish().expect("memory")
        }
        "hex" => {
            let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
            digits
                .chunks(2)
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16).expect("hex"))
                .collect()
        }
        "arrow" => {
            let (schema, batches) = batches(rest, text);
            let mut out = StreamWriter::try_new(Vec::new(), &schema).expect("writer");
            for batch in &batches {
                out.write(batch).expect("memory");
            }
            out.into_inner().expect("memory")
        }
        "parquet" => {
            let (schema, batches) = batches(rest, text);
            let mut out = ArrowWriter::try_new(Vec::new(), schema, None).expect("writer");
            for batch in &batches {
                out.write(batch).expect("memory");
            }
            out.into_inner().expect("memory")
        }
        other => panic!("no such body: {other}"),
    }
}

fn batches(columns: &str, text: &str) -> (SchemaRef, Vec<RecordBatch>) {
    let fields: Vec<Field> = columns
        .split_whitespace()
        .map(|column| {
            let (name, ty) = column.split_once(':').expect("name:type");
            Field::new(name, data_type(ty), true)
        })
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let reader = ReaderBuilder::new(Arc::clone(&schema)).build(text.as_bytes()).expect("reader");
    (schema, reader.map(|batch| batch.expect("rows of the schema")).collect())
}

fn data_type(name: &str) -> DataType {
    match name {
        "bool" => DataType::Boolean,
        "int8" => DataType::Int8,
        "int16" => DataType::Int16,
        "int32" => DataType::Int32,
        "int64" => DataType::Int64,
        "float32" => DataType::Float32,
        "float64" => DataType::Float64,
        "utf8" => DataType::Utf8,
        "date32" => DataType::Date32,
        "timestamp_us" => DataType::Timestamp(TimeUnit::Microsecond, None),
        "timestamp_ms" => DataType::Timestamp(TimeUnit::Millisecond, None),
        "timestamp_utc" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "decimal_10_2" => DataType::Decimal128(10, 2),
        "decimal_50_3" => DataType::Decimal256(50, 3),
        "list_int32" => DataType::List(Arc::new(Field::new("item", DataType::Int32, true))),
        "struct_a_int32_b_utf8" => {
            DataType::Struct(vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8, true)].into())
        }
        other => panic!("no such type: {other}"),
    }
}
