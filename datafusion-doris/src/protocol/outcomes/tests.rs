use super::*;

const DOCS: &str = include_str!("../../../../docs/outcomes.md");

#[test]
fn every_event_of_a_load_has_its_step() {
    use ExistingJob::{Finished, PreCommitted, Running, Unknown};
    use LoadEvent::{AtFrontend, CutBody, LabelTaken, Loaded, LostAnswer, NotReached, PublishTimeout, Refused};
    use LoadStep::{Done, DoneNotVisible};
    use Refusal::*;
    let [never, again, later, taken, ask, unknown] =
        [Retry::Never, Retry::SameLabel, Retry::Later, Retry::LabelTaken, Retry::AskLabelState, Retry::CannotTell]
            .map(LoadStep::Failed);
    let rows = [
        (Loaded, [Done, Done, Done]),
        (PublishTimeout, [DoneNotVisible, DoneNotVisible, DoneNotVisible]),
        (LabelTaken(Running), [taken, taken, never]),
        (LabelTaken(PreCommitted), [taken, taken, never]),
        (LabelTaken(Finished), [never, taken, never]),
        (LabelTaken(Unknown), [taken, taken, never]),
        (Refused(TooManyVersions), [later, later, unknown]),
        (Refused(TooManyTransactions), [later, later, unknown]),
        (Refused(NoBackend), [again, again, unknown]),
        (Refused(Memory), [again, again, unknown]),
        (Refused(Busy), [again, again, unknown]),
        (Refused(FilteredRows), [never, never, never]),
        (Refused(Access), [never, never, never]),
        (Refused(Unclear), [ask, ask, unknown]),
        (Refused(Other), [never, never, never]),
        (AtFrontend(TooManyVersions), [later, later, later]),
        (AtFrontend(TooManyTransactions), [later, later, later]),
        (AtFrontend(NoBackend), [again, again, again]),
        (AtFrontend(Memory), [again, again, again]),
        (AtFrontend(Busy), [again, again, again]),
        (AtFrontend(FilteredRows), [never, never, never]),
        (AtFrontend(Access), [never, never, never]),
        (AtFrontend(Unclear), [again, again, again]),
        (AtFrontend(Other), [never, never, never]),
        (NotReached, [again, again, again]),
        (CutBody, [again, again, unknown]),
        (LostAnswer, [ask, ask, unknown]),
    ];
    for (event, expected) in rows {
        assert_eq!(LoadKind::ALL.map(|kind| after_load(event, kind)), expected, "{event}");
    }
    let tested: Vec<LoadEvent> = rows.iter().map(|(event, _)| *event).collect();
    assert_eq!(LoadEvent::all().collect::<Vec<_>>(), tested, "each event has a row");
}

#[test]
fn a_job_begins_its_epoch_anew_after_what_passes_or_is_unknown_and_ends_after_the_rest() {
    use crate::error::Outlook::{Passing, Permanent};
    for (retry, outlook) in [
        (Retry::Never, Permanent),
        (Retry::SameLabel, Passing),
        (Retry::Later, Passing),
        (Retry::LabelTaken, Passing),
        (Retry::AskLabelState, Passing),
        (Retry::CannotTell, Passing),
    ] {
        let error = Error::StreamLoad {
            table: "db.t".into(),
            label: "l".into(),
            message: "refused".into(),
            error_url: None,
            first_error: None,
            retry,
        };
        assert_eq!(error.outlook(), outlook, "{retry:?}");
    }
}

#[test]
fn every_answer_to_commit_and_abort_has_its_step() {
    use TxnStep::{Again, AskLabelState, Done, Look, Stop, Visible};
    let rows = [
        (TxnEvent::Done, Done, Done),
        (TxnEvent::AlreadyCommitted, Done, Visible),
        (TxnEvent::AlreadyAborted, Stop, Done),
        (TxnEvent::StillLoading, Again, Again),
        (TxnEvent::NotFound, Look, Done),
        (TxnEvent::Refused, Stop, Stop),
        (TxnEvent::Unclear, Again, Again),
        (TxnEvent::Lost, AskLabelState, Again),
    ];
    for (event, commit, abort) in rows {
        assert_eq!(after_txn(TxnOperation::Commit, event), commit, "{event}");
        assert_eq!(after_txn(TxnOperation::Abort, event), abort, "{event}");
    }
    assert_eq!(rows.map(|(event, ..)| event), TxnEvent::ALL, "each event has a row");
}

#[test]
fn reasons_are_known_by_the_servers_texts() {
    for (text, reason) in [
        ("[E-235]failed to init rowset builder. version count: 2001, exceed limit", Refusal::TooManyVersions),
        ("tablet 5 has too many versions", Refusal::TooManyVersions),
        (
            "[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = current running txns on db 10 is 1000, larger than \
             limit 1000",
            Refusal::TooManyTransactions,
        ),
        ("No backend load available.", Refusal::NoBackend),
        ("tablet 1 alive replica num 0 < load required replica num 1", Refusal::NoBackend),
        ("[MEM_LIMIT_EXCEEDED]Memory limit exceeded: process", Refusal::Memory),
        ("[DATA_QUALITY_ERROR]too many filtered rows", Refusal::FilteredRows),
        ("[THRIFT_RPC_ERROR]call frontend service failed", Refusal::Unclear),
        ("[INTERNAL_ERROR]load timed out", Refusal::Unclear),
        ("[ANALYSIS_ERROR]unknown column x", Refusal::Other),
        ("", Refusal::Other),
    ] {
        assert_eq!(Refusal::of(text), reason, "{text}");
    }
}

#[test]
fn the_page_about_outcomes_shows_these_tables() {
    for table in markdown().split("\n\n") {
        assert!(DOCS.contains(table.trim_end()), "docs/outcomes.md is stale, it must hold:\n{table}");
    }
}
