//! Schemas that change while a changelog is read.

use super::*;

fn altered(how: Altered) -> Manners {
    Manners { altered: Some((START + 25_000, how)), ..Manners::default() }
}

#[tokio::test(start_paused = true)]
async fn column_of_another_type_ends_the_read_before_any_of_its_values_is_given() {
    let changes = vec![insert(START, 1, "x")];
    // The window that shows it has no row.
    let server = FakeServer::new(changes, vec![], Manners { versions: Versions::Refused, ..altered(Altered::Retyped) });
    let mut stream = execute(&node(&server, false, false));
    assert_eq!(rows_of(&stream.next().await.unwrap().unwrap()), ["+I1x"]);
    let error = stream.next().await.unwrap().unwrap_err().to_string();
    for part in ["db.t", "column 'name' was STRING", "Int64", "declare the table again"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn column_that_is_gone_ends_the_read_with_its_name() {
    let changes = vec![insert(START, 1, "x"), insert(START + 26_000, 2, "y")];
    let server = FakeServer::new(changes, vec![], altered(Altered::Dropped));
    let mut stream = execute(&node(&server, false, false));
    assert_eq!(rows_of(&stream.next().await.unwrap().unwrap()), ["+I1x"]);
    let error = stream.next().await.unwrap().unwrap_err().to_string();
    for part in ["db.t", "column 'name' is read but was dropped or renamed", "declare the table again"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn window_that_never_becomes_visible_names_the_option_that_waits() {
    let manners = Manners { failures: Mutex::new(vec![5101; 1000]), ..Manners::default() };
    let server = FakeServer::new(vec![insert(START, 1, "x")], vec![], manners);
    let error = drain(&node(&server, false, false)).await.unwrap_err().to_string();
    assert!(error.contains("300s") && error.contains("'source.changelog.visible-wait-timeout'"), "{error}");
}
