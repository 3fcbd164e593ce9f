//! Encoders against the stock writers of arrow, and whole INSERTs against a bare PUT of the same bytes.

use crate::common::http::Http;
use crate::common::measure::Series;
use crate::common::{Outcome, Server};
use crate::encode::{BASE, Rows, body_of, columns, insert};
use crate::report::{Bar, Figure, Report};
use crate::shapes::{SHAPES, Shape};
use crate::share;

/// A format with its bars.
struct Format {
    name: &'static str,
    /// MB/s of the encoder on flights.
    megabytes: f64,
    /// Times the rows of the stock writer.
    stock: Bar,
    /// Bytes of one run.
    sent: u64,
    /// Headers that say how to read it: with them the server has to look for quotes, as it has to for the sink's.
    headers: &'static [(&'static str, &'static str)],
}

/// Those of the csv that the sink sends.
const CSV: &[(&str, &str)] = &[
    ("column_separator", "\\x09"),
    ("line_delimiter", "\\x0a"),
    ("enclose", "\""),
    ("escape", "\\"),
    ("trim_double_quotes", "true"),
];

const FORMATS: [Format; 3] = [
    Format { name: "csv", megabytes: 400.0, stock: Bar::Least(1.5), sent: 384 << 20, headers: CSV },
    Format { name: "json", megabytes: 300.0, stock: Bar::Least(1.5), sent: 384 << 20, headers: &[] },
    // The stock writer copies buffers, which is all there is to do.
    Format { name: "arrow", megabytes: 2000.0, stock: Bar::More, sent: 1280 << 20, headers: &[] },
];

/// Measures every shape in every format that can hold it.
pub async fn measure(server: &Server, runs: u64, report: &mut Report) -> Outcome<()> {
    for shape in SHAPES {
        let table = format!("insert_{}", shape.name);
        server.doris(&shape.create(&table, ", 'sandbox.discard' = 'true'")).await?;
        for format in &FORMATS {
            // The server takes nested values as JSON text in csv, which nobody would choose.
            if format.name == "csv" && shape.name == "nested" {
                continue;
            }
            if let Ok(only) = std::env::var("LOOPBACK_INSERT")
                && only != format!("{} {}", shape.name, format.name)
            {
                continue;
            }
            one(server, shape, &table, format, runs, report).await?;
        }
        server.doris(&format!("DROP TABLE bench.{table}")).await?;
    }
    Ok(())
}

async fn one(
    server: &Server,
    shape: &Shape,
    table: &str,
    format: &Format,
    runs: u64,
    report: &mut Report,
) -> Outcome<()> {
    let context = datafusion_doris::session_context();
    let options = format!(", 'sink.properties.format' '{}', 'sink.properties.compress_type' ''", format.name);
    server.declare(&context, "target", table, &options).await?;
    let rows = Rows::make(server, &context, shape, table, format.name).await?;
    let times = rows.times(share(format.sent, 1)?);
    rows.register(&context, "rows", times)?;
    let names = columns(shape);
    let sql = format!("INSERT INTO target ({names}) SELECT {names} FROM rows");
    let chunks = rows.chunks(times)?;
    let total: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
    let http = Http::new(server)?;
    let [mut encoder, mut both, mut stock, mut put, mut whole] = [(); 5].map(|()| Series::default());
    let mut stock_bytes = 0;
    for run in 0..=runs {
        encoder.time(async { rows.encode(times) }).await?;
        both.time(async { rows.encode_on_two(times) }).await?;
        put.time(http.load(table, format.name, format.headers, body_of(&chunks))).await?;
        whole.time(insert(&context, &sql, BASE * times)).await?;
        stock_bytes = stock.time(async { rows.stock(format.name, times) }).await?;
        if run == 0 {
            [&mut encoder, &mut both, &mut stock, &mut put, &mut whole].into_iter().for_each(Series::clear);
        }
    }
    let label = format!("{} {}", shape.name, format.name);
    let rate = |bytes: u64, series: &Series| bytes as f64 / 1e6 / series.wall();
    let bar = if shape.name == "flights" { Bar::Least(format.megabytes) } else { Bar::More };
    let value = rate(total, &encoder);
    let figure = Figure::new(format!("encoder {label}"), value, "MB/s", bar);
    let value = encoder.ratio_to(&both, |sample| sample.wall);
    let beside = format!("{value:.2} times that on each of two cores at once");
    report.add(figure.of(&encoder).moved(Some(total), BASE * times).beside(beside));
    // Rows count, not bytes: the stock writer's text is of another length.
    let bar = if shape.name == "flights" { format.stock } else { Bar::More };
    let value = stock.ratio_to(&encoder, |sample| sample.wall);
    let beside = format!(
        "arrow-{} {:.0} MB/s ± {:.0} %, {:.2} times the bytes",
        if format.name == "arrow" { "ipc" } else { format.name },
        rate(stock_bytes, &stock),
        stock.spread(),
        stock_bytes as f64 / total as f64
    );
    report.add(Figure::new(format!("encoder {label}: rows over the stock writer"), value, "x", bar).beside(beside));
    let value = encoder.slower_of(&put).ratio_to(&whole, |sample| sample.wall);
    let beside = format!(
        "{:.0} MB/s, {:.2} of what all cores allow, {:.2} cores busy; encoder {:.0} MB/s; bare PUT {:.0} MB/s ± {:.0} %, \
         {:.2} cores busy, {:.2} CPU s, server {:.2}",
        rate(total, &whole),
        put.of_all_cores(&encoder, &whole),
        whole.cores(),
        rate(total, &encoder),
        rate(total, &put),
        put.spread(),
        put.cores(),
        put.cpu(),
        put.server()
    );
    let figure = Figure::new(format!("insert {label}: rate over the slower of both"), value, "x", Bar::Least(0.90));
    report.add(figure.of(&whole).moved(Some(total), BASE * times).beside(beside));
    Ok(())
}
