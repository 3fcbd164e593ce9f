//! Stores of checkpoints: the same promises, whatever is behind them.

use std::sync::Arc;

use datafusion_doris::checkpoint::store::{Created, LocalStore, ObjectStoreCheckpoints};
use datafusion_doris::checkpoint::{CheckpointStore, store};
use doris_sandbox::s3_endpoint::{S3Endpoint, S3Settings};

pub fn s3(endpoint: &S3Endpoint, job: &str) -> ObjectStoreCheckpoints {
    let options = [
        ("AWS_ACCESS_KEY_ID", "sandbox-access"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "here"),
        ("AWS_ENDPOINT", &format!("http://{}", endpoint.address())),
        ("AWS_ALLOW_HTTP", "true"),
        ("HOME", "is none of it"),
    ];
    let options = options.map(|(key, value)| (key.to_string(), value.to_string()));
    ObjectStoreCheckpoints::from_url("s3://checkpoints/jobs", job, options).expect("a store")
}

async fn keeps_its_promises(store: &dyn CheckpointStore) {
    assert!(store.list().await.expect("lists").is_empty());
    assert_eq!(store.read("a.json").await.expect("reads"), None);
    store.delete("a.json").await.expect("what is not there can be removed");

    assert_eq!(store.create("a.json", b"one".to_vec()).await.expect("creates"), Created::Created);
    assert_eq!(store.create("a.json", b"two".to_vec()).await.expect("creates"), Created::Exists);
    assert_eq!(store.read("a.json").await.expect("reads").as_deref(), Some(&b"one"[..]));
    store.put("a.json", b"three".to_vec()).await.expect("writes");
    store.put("b.done", b"".to_vec()).await.expect("writes");
    assert_eq!(store.read("a.json").await.expect("reads").as_deref(), Some(&b"three"[..]));
    let mut names = store.list().await.expect("lists");
    names.sort();
    assert_eq!(names, ["a.json", "b.done"]);

    let racers = (0..16).map(|i| store.create("race", format!("{i}").into_bytes()));
    let outcomes = futures::future::join_all(racers).await;
    let winners: Vec<usize> = outcomes
        .iter()
        .enumerate()
        .filter(|(_, outcome)| matches!(outcome, Ok(Created::Created)))
        .map(|(i, _)| i)
        .collect();
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(winners.len(), 1, "one of them wins");
    assert_eq!(store.read("race").await.expect("reads"), Some(format!("{}", winners[0]).into_bytes()));

    store.delete("a.json").await.expect("removes");
    assert_eq!(store.read("a.json").await.expect("reads"), None);
}

#[tokio::test]
async fn a_local_directory_keeps_its_promises() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("not/yet/there");
    keeps_its_promises(&LocalStore::new(path.join("job"))).await;
    let left: Vec<_> = std::fs::read_dir(path.join("job")).expect("a directory").flatten().collect();
    assert_eq!(left.len(), 2, "no temporary file stays behind: {left:?}");
    let cut_off = path.join("job/checkpoint-000000000007.json.1-0.tmp");
    std::fs::write(&cut_off, "{").expect("writes");
    let store = LocalStore::new(path.join("job"));
    assert_eq!(store.list().await.expect("lists").len(), 2, "it is no object");
    store.sweep().await.expect("removes it");
    assert!(!cut_off.exists() && store.list().await.expect("lists").len() == 2);
    let other = store::open(path.to_str().expect("text"), "another job").expect("a store");
    assert!(other.list().await.expect("lists").is_empty(), "each job has its own");
}

#[tokio::test]
async fn an_s3_bucket_keeps_its_promises() {
    let endpoint = S3Endpoint::start(S3Settings::default()).await.expect("starts");
    // A bucket comes into being with its first object.
    endpoint.put("checkpoints", "somebody/else", "x");
    keeps_its_promises(&s3(&endpoint, "job")).await;
    let other = s3(&endpoint, "another job");
    assert!(other.list().await.expect("lists").is_empty(), "each job has its own");
    assert_eq!(other.location(), "s3://checkpoints/jobs/another job");
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "x").expect("writes");
    let store: Arc<dyn CheckpointStore> = Arc::new(LocalStore::new(file.join("job")));
    let error = store.create("a.json", vec![]).await.expect_err("a file is no directory");
    assert!(error.to_string().contains("creating") && error.to_string().contains("job/a.json"), "{error}");
    assert_eq!(error.retry(), datafusion_doris::Retry::Never);
}
