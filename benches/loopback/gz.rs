//! Whole INSERTs with gz, as it is by default, against nothing but the compressor: on one core, and on both.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::common::measure::Series;
use crate::common::{Outcome, Server};
use crate::encode::{BASE, Rows, columns, insert};
use crate::report::{Bar, Figure, Report};
use crate::shapes::flights;
use crate::share;

/// Bytes of one run, before compression.
const SENT: u64 = 192 << 20;
/// Compressed bytes that are kept before they are dropped, as a load's chunks are.
const CHUNK: usize = 1 << 20;
/// Rate over the compressor's own.
const LEAST: f64 = 0.90;

/// Measures the formats that are compressed by default.
pub async fn measure(server: &Server, runs: u64, report: &mut Report) -> Outcome<()> {
    for format in ["csv", "json"] {
        one(server, format, runs, report).await?;
    }
    Ok(())
}

async fn one(server: &Server, format: &str, runs: u64, report: &mut Report) -> Outcome<()> {
    let (shape, table) = (flights()?, format!("gz_{format}"));
    server.doris(&shape.create(&table, ", 'sandbox.discard' = 'true'")).await?;
    let context = datafusion_doris::session_context();
    for (name, loads) in [("target", 1), ("target_2", 2)] {
        let options = format!(", 'sink.properties.format' '{format}', 'sink.parallelism' '{loads}'");
        server.declare(&context, name, &table, &options).await?;
    }
    let rows = Rows::make(server, &context, shape, &table, format).await?;
    let times = rows.times(share(SENT, 1)?);
    rows.register(&context, "rows", times)?;
    let chunks = rows.chunks(times)?;
    let total: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
    let names = columns(shape);
    let [mut alone, mut both, mut encoder, mut whole, mut whole_2] = [(); 5].map(|()| Series::default());
    let mut compressed = 0;
    for run in 0..=runs {
        compressed = alone.time(async { compress(chunks.iter()) }).await?;
        for (series, target) in [(&mut whole, "target"), (&mut whole_2, "target_2")] {
            let sql = format!("INSERT INTO {target} ({names}) SELECT {names} FROM rows");
            series.time(insert(&context, &sql, BASE * times)).await?;
        }
        both.time(async { compress_by_two(&chunks) }).await?;
        encoder.time(async { rows.encode(times) }).await?;
        if run == 0 {
            [&mut alone, &mut both, &mut encoder, &mut whole, &mut whole_2].into_iter().for_each(Series::clear);
        }
    }
    let megabytes = total as f64 / 1e6;
    for (what, whole, own) in [("one load", &whole, &alone), ("two loads", &whole_2, &both)] {
        let value = own.ratio_to(whole, |sample| sample.wall);
        let beside = format!(
            "{:.0} MB/s before compression, {:.2} cores busy; CPU s: flate2 {:.2}, encoder {:.2}, server {:.2}; flate2 \
             alone {:.0} MB/s ± {:.0} % to {:.1} % of the bytes",
            megabytes / whole.wall(),
            whole.cores(),
            alone.cpu(),
            encoder.cpu(),
            whole.server(),
            megabytes / own.wall(),
            own.spread(),
            compressed as f64 / total as f64 * 100.0
        );
        let name = format!("insert {} {format} gz, {what}: rate over the compressor's", shape.name);
        let figure = Figure::new(name, value, "x", Bar::Least(LEAST));
        report.add(figure.of(whole).moved(Some(total), BASE * times).beside(beside));
    }
    server.doris(&format!("DROP TABLE bench.{table}")).await?;
    Ok(())
}

/// Bytes that come out, at the level that loads are compressed with.
fn compress<'a>(chunks: impl Iterator<Item = &'a Bytes>) -> Outcome<u64> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(2 * CHUNK), Compression::fast());
    let mut length = 0;
    for chunk in chunks {
        encoder.write_all(chunk)?;
        let out = encoder.get_mut();
        if out.len() >= CHUNK {
            length += out.len() as u64;
            out.clear();
        }
    }
    Ok(length + encoder.finish()?.len() as u64)
}

/// The same on two cores, each with every other chunk.
fn compress_by_two(chunks: &[Bytes]) -> Outcome<u64> {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| compress(chunks.iter().skip(1).step_by(2)));
        let own = compress(chunks.iter().step_by(2))?;
        Ok(own + other.join().map_err(|_| "a thread panicked")??)
    })
}
