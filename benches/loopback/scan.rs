//! Scans against a bare Arrow Flight client that reads the same endpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;
use tonic::transport::{Channel, Endpoint};

use crate::common::measure::Series;
use crate::common::server::{PASSWORD, USER};
use crate::common::{Outcome, Server, amount};
use crate::report::{Bar, Report};
use crate::shapes::{SHAPES, Shape};

/// HTTP/2 window of the bare reader.
const WINDOW: u32 = 64 << 20;
/// HTTP/2 frames of the bare reader.
const FRAME: u32 = 1 << 20;

/// Measures the scan of each shape.
pub async fn measure(server: &Server, runs: u64, report: &mut Report) -> Outcome<()> {
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    datafusion_doris::register(&context)?;
    let share = amount("LOOPBACK_PERCENT", 100)?;
    for shape in SHAPES {
        let total = (shape.total * share / 100).max(shape.base);
        let table = format!("scan_{}", shape.name);
        let replayed = format!(", 'sandbox.replay' = 'true', 'sandbox.replay.rows' = '{total}'");
        server.doris(&shape.create(&table, &replayed)).await?;
        server.declare(&context, &table, &table, "").await?;
        let insert = format!("INSERT INTO {table} {}", shape.query(shape.base));
        datafusion_doris::sql(&context, &insert).await?.collect().await?;
        let bare = Bare::connect(server, shape, &table).await?;
        let [mut ours, mut theirs, mut first_ours, mut first_theirs] = [(); 4].map(|()| Series::default());
        let mut bytes = 0;
        for run in 0..=runs {
            let (rows, size, first) = theirs.time(bare.read()).await?;
            let (got, got_first) = ours.time(scan(&context, &table)).await?;
            if rows != got {
                return Err(format!("{table}: {got} rows, the bare client read {rows}").into());
            }
            bytes = size;
            first_theirs.push(first);
            first_ours.push(got_first);
            if run == 0 {
                // The first read freezes the table.
                [&mut ours, &mut theirs, &mut first_ours, &mut first_theirs].into_iter().for_each(Series::clear);
            }
        }
        let beside = format!(
            "{:.2} GB/s beside {:.2} GB/s bare, {total} rows, spread {:.0} % and {:.0} %",
            bytes as f64 / 1e9 / ours.wall(),
            bytes as f64 / 1e9 / theirs.wall(),
            ours.spread(),
            theirs.spread()
        );
        let rate = theirs.ratio_to(&ours, |sample| sample.wall);
        report.add(format!("scan {}: rate over bare DoGet", shape.name), rate, "x", Bar::Least(0.90), beside);
        let cpu = ours.ratio_to(&theirs, |sample| sample.cpu);
        let beside = format!("{:.3} s beside {:.3} s", ours.cpu(), theirs.cpu());
        report.add(format!("scan {}: CPU over bare DoGet", shape.name), cpu, "x", Bar::Most(1.15), beside);
        let later = (first_ours.wall() - first_theirs.wall()) * 1e3;
        let beside = format!("{:.1} ms beside {:.1} ms", first_ours.wall() * 1e3, first_theirs.wall() * 1e3);
        report.add(
            format!("scan {}: first batch after the bare client's", shape.name),
            later,
            "ms",
            Bar::Most(5.0),
            beside,
        );
        server.doris(&format!("DROP TABLE bench.{table}")).await?;
    }
    Ok(())
}

/// Rows, and seconds from the executed plan to the first batch.
async fn scan(context: &SessionContext, table: &str) -> Outcome<(u64, f64)> {
    let plan = datafusion_doris::sql(context, &format!("SELECT * FROM {table}")).await?.create_physical_plan().await?;
    let started = Instant::now();
    let mut first = None;
    let mut rows = 0;
    let mut batches = execute_stream(plan, context.task_ctx())?;
    while let Some(batch) = batches.try_next().await? {
        first.get_or_insert_with(|| started.elapsed());
        rows += batch.num_rows() as u64;
    }
    Ok((rows, first.unwrap_or_default().as_secs_f64()))
}

/// A client that knows nothing of DataFusion.
struct Bare {
    fe: Channel,
    be: Channel,
    sql: String,
}

impl Bare {
    async fn connect(server: &Server, shape: &Shape, table: &str) -> Outcome<Self> {
        let columns: Vec<String> = shape.names().iter().map(|name| format!("`{name}`")).collect();
        let sql = format!("SELECT {} FROM bench.{table}", columns.join(", "));
        Ok(Self { fe: channel(&server.fe_flight).await?, be: channel(&server.be_flight).await?, sql })
    }

    /// Rows, bytes of their buffers, and seconds to the first batch.
    async fn read(&self) -> Outcome<(u64, u64, f64)> {
        let started = Instant::now();
        let mut fe = FlightSqlServiceClient::new_from_inner(FlightServiceClient::new(self.fe.clone()));
        fe.handshake(USER, PASSWORD).await?;
        let info = fe.execute(self.sql.clone(), None).await?;
        let (mut rows, mut first) = (0, None);
        let bytes = Arc::new(AtomicU64::new(0));
        for endpoint in info.endpoint {
            let mut be = FlightServiceClient::new(self.be.clone()).max_decoding_message_size(usize::MAX);
            let ticket = endpoint.ticket.ok_or("the endpoint has no ticket")?;
            let count = Arc::clone(&bytes);
            let messages = be
                .do_get(ticket)
                .await?
                .into_inner()
                .inspect_ok(move |message| {
                    count.fetch_add(message.data_body.len() as u64, Ordering::Relaxed);
                })
                .map_err(|status| FlightError::Tonic(Box::new(status)));
            let mut batches = FlightRecordBatchStream::new_from_flight_data(messages);
            while let Some(batch) = batches.try_next().await? {
                first.get_or_insert_with(|| started.elapsed());
                rows += batch.num_rows() as u64;
            }
        }
        fe.close().await.map_err(|error| format!("closing: {error}")).ok();
        Ok((rows, bytes.load(Ordering::Relaxed), first.unwrap_or_default().as_secs_f64()))
    }
}

async fn channel(address: &str) -> Outcome<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(FRAME)
        .tcp_nodelay(true);
    Ok(endpoint.connect().await?)
}
