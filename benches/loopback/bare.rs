//! Clients that know nothing of this project: Arrow Flight, and the MySQL protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use futures::TryStreamExt;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};
use tonic::transport::Channel;

use crate::common::flight::channel;
use crate::common::server::{PASSWORD, USER};
use crate::common::{Outcome, Server};

/// What a read gave.
#[derive(Debug, Clone, Copy, Default)]
pub struct Read {
    pub rows: u64,
    /// Of the buffers, or of the texts.
    pub bytes: u64,
    /// Seconds until the first batch.
    pub first: f64,
}

/// A loop of `DoGet` over the endpoints of a statement, on one session.
pub struct Flight {
    fe: FlightSqlServiceClient<Channel>,
    be: Channel,
}

impl Flight {
    pub async fn connect(server: &Server) -> Outcome<Self> {
        let fe = FlightServiceClient::new(channel(&server.fe_flight).await?);
        let mut fe = FlightSqlServiceClient::new_from_inner(fe);
        fe.handshake(USER, PASSWORD).await?;
        Ok(Self { fe, be: channel(&server.be_flight).await? })
    }

    /// Runs the statement and decodes its rows.
    pub async fn read(&mut self, sql: &str) -> Outcome<Read> {
        let started = Instant::now();
        let info = self.fe.execute(sql.to_owned(), None).await?;
        let (mut read, mut first) = (Read::default(), None);
        let bytes = Arc::new(AtomicU64::new(0));
        for endpoint in info.endpoint {
            let mut be = FlightServiceClient::new(self.be.clone()).max_decoding_message_size(usize::MAX);
            let ticket = endpoint.ticket.ok_or("the endpoint has no ticket")?;
            let count = Arc::clone(&bytes);
            let messages = be.do_get(ticket).await?.into_inner();
            let messages = messages
                .inspect_ok(move |message| {
                    count.fetch_add(message.data_body.len() as u64, Ordering::Relaxed);
                })
                .map_err(|status| FlightError::Tonic(Box::new(status)));
            let mut batches = FlightRecordBatchStream::new_from_flight_data(messages);
            while let Some(batch) = batches.try_next().await? {
                first.get_or_insert_with(|| started.elapsed());
                read.rows += batch.num_rows() as u64;
            }
        }
        read.bytes = bytes.load(Ordering::Relaxed);
        read.first = first.unwrap_or_default().as_secs_f64();
        Ok(read)
    }
}

/// Rows as texts, by `mysql_async`.
pub struct Mysql(Conn);

impl Mysql {
    pub async fn connect(server: &Server) -> Outcome<Self> {
        let address = server.jdbc_url.strip_prefix("jdbc:mysql://").ok_or("an odd jdbc url")?;
        Ok(Self(Conn::from_url(format!("mysql://{USER}:{PASSWORD}@{}", address.trim_end_matches('/'))).await?))
    }

    pub async fn read(&mut self, sql: &str) -> Outcome<Read> {
        let mut read = Read::default();
        let mut result = self.0.query_iter(sql).await?;
        while let Some(row) = result.next().await? {
            read.rows += 1;
            read.bytes += bytes_of(row);
        }
        Ok(read)
    }
}

fn bytes_of(row: Row) -> u64 {
    let length = |value: Value| if let Value::Bytes(text) = value { text.len() as u64 } else { 0 };
    row.unwrap().into_iter().map(length).sum()
}
