//! How failures travel over Flight.

use tonic::Status;
use tonic::metadata::{MetadataMap, MetadataValue};

use crate::engine::Profile;
use crate::error::SqlError;
use crate::faults::FlightSchemaFault;

/// Exception that the FE makes from a statement that failed.
const AFTER_QUERY: &str = "after executeQueryStatement handleQuery";
/// Code of most failures: the FE reports every exception of a command under it.
const UNKNOWN: &str = "ERR_UNKNOWN_ERROR";

/// INTERNAL with exception, root cause, code and message. Builds before the newest wrap it once more.
fn info_failed(profile: Profile, exception: &str, code: &str, message: &str) -> String {
    let outer = if profile < Profile::V5_0Changelog { "get flight info statement failed, " } else { "" };
    format!(
        "{outer}get flight info statement failed, {exception}, RuntimeException: {exception}, error code: {code}, error \
         msg: {message}"
    )
}

/// A statement that failed: INTERNAL, or UNAVAILABLE for windows that are not ready.
pub(super) fn statement(profile: Profile, error: &SqlError) -> Status {
    let name = error.name.unwrap_or(match error.code {
        5097 => "ERR_ARROW_FLIGHT_SQL_MUST_ONLY_RESULT_STMT",
        _ => UNKNOWN,
    });
    let text = info_failed(profile, AFTER_QUERY, name, &error.message);
    if !matches!(error.code, 5100 | 5101) {
        return Status::internal(text);
    }
    let mut metadata = MetadataMap::new();
    metadata.insert("doris-error-code", MetadataValue::from(error.code));
    if let Ok(name) = MetadataValue::try_from(name) {
        metadata.insert("doris-error-name", name);
    }
    Status::with_metadata(tonic::Code::Unavailable, text, metadata)
}

/// A failure of `GetFlightInfo` after the statement itself succeeded.
pub(super) fn after_statement(profile: Profile, exception: &str) -> Status {
    Status::internal(info_failed(profile, exception, "null", ""))
}

/// A connection that could not be made for a statement.
pub(super) fn no_connection(status: Status) -> Status {
    match status.code() {
        tonic::Code::Internal => Status::internal(format!("get flight info statement failed, {}", status.message())),
        _ => status,
    }
}

/// The result of a query that the FE did not get the schema of.
pub(super) fn schema(profile: Profile, fault: &FlightSchemaFault, query_id: &str, backend: &str) -> Status {
    let text = match fault {
        FlightSchemaFault::NoAnswer => format!("fetch arrow flight schema timeout, queryId: {query_id}"),
        FlightSchemaFault::Timeout => {
            format!("arrow flight schema fetch timeout, queryId: {query_id}\u{ff0c}backend: {backend}")
        }
        FlightSchemaFault::Failed(reason) => {
            format!("fetch arrow flight schema failed, queryId: {query_id}, errmsg: {reason}")
        }
        FlightSchemaFault::Empty => format!("get empty arrow flight schema, queryId: {query_id}"),
        FlightSchemaFault::Null => "fetch arrow flight schema is null".to_owned(),
    };
    after_statement(profile, &text)
}

/// A result of the FE that is not there.
pub(super) fn no_stream() -> Status {
    Status::internal("get stream statement failed, null, NullPointerException: null, error code: null, error msg: ")
}

/// A handle without its second part, as Java tells it.
pub(super) fn short_handle() -> Status {
    Status::internal("ArrayIndexOutOfBoundsException: Index 1 out of bounds for length 1")
}
