//! What Doris says and wants to hear over HTTP: headers, JSON bodies, statuses. Pure: no I/O, no clock.
//!
//! What happened is read here ([`classify_load`], [`classify_txn`]), and what is done then is decided here
//! ([`after_load`], [`after_txn`], [`after_unknown_outcome`]), so that each row of these tables has a test.

mod envelope;
mod frontends;
mod insert_answer;
mod label;
mod load_state;
mod location;
mod outcomes;
mod stream_load;
#[cfg(test)]
mod tests;
mod tso;
mod txn;

pub use envelope::{Envelope, EnvelopeError, EnvelopeErrorKind, parse_envelope, parse_result_set};
pub use frontends::{Frontend, flight_port_of, parse_frontends};
pub use insert_answer::{InsertAnswer, error_log_in, without_signatures};
pub use label::{LabelIdentity, MAX_LABEL_LENGTH, is_valid_label};
pub use load_state::{LabelState, NextStep, PendingOperation, after_unknown_outcome};
pub use location::{FlightLocation, RedirectTarget, parse_flight_location, parse_redirect};
pub use outcomes::{
    LoadEvent, LoadKind, LoadStep, Refusal, TxnEvent, TxnStep, after_load, after_txn, markdown as outcome_tables,
};
pub use stream_load::{
    DELETE_SIGN, ExistingJob, LoadRequest, LoadTimes, StreamLoadHeaders, StreamLoadResponse, classify_load,
    classify_load_refusal,
};
pub use tso::{Tso, TsoStatus};
pub use txn::{TxnOperation, TxnOutcome, TxnRef, classify_txn, txn_headers};

/// An answer that does not have the shape it must have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unexpected answer: {0}")]
pub struct Malformed(pub String);

/// The start of a text, for messages: bodies can be whole HTML pages.
pub(crate) fn excerpt(body: &[u8]) -> String {
    const LONGEST: usize = 300;
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    if text.is_empty() {
        return "an empty body".into();
    }
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
