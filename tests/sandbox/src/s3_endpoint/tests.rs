#![allow(clippy::unwrap_used, clippy::expect_used)]

use futures::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, WriteMultipart};

use super::{S3Endpoint, S3Settings};

fn store(endpoint: &S3Endpoint, key: &str) -> AmazonS3 {
    let _ = rustls::crypto::ring::default_provider().install_default();
    AmazonS3Builder::new()
        .with_endpoint(endpoint.url())
        .with_allow_http(true)
        .with_bucket_name("b")
        .with_region("us-east-1")
        .with_access_key_id(key)
        .with_secret_access_key("secret")
        .build()
        .expect("store")
}

#[tokio::test]
async fn objects_are_written_listed_read_and_deleted() {
    let endpoint = S3Endpoint::start(S3Settings { page: 2, ..S3Settings::default() }).await.expect("endpoint");
    let s3 = store(&endpoint, "sandbox-access");
    for i in 0..5 {
        s3.put(&Path::from(format!("d/{i}")), format!("body {i}").into()).await.expect("put");
    }
    let once = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    let again = s3.put_opts(&Path::from("d/0"), "x".into(), once).await;
    assert!(matches!(again, Err(object_store::Error::AlreadyExists { .. })), "{again:?}");
    let keys: Vec<String> =
        s3.list(Some(&Path::from("d"))).map_ok(|m| m.location.to_string()).try_collect().await.expect("list");
    assert_eq!(keys, ["d/0", "d/1", "d/2", "d/3", "d/4"], "three pages");
    let folded = s3.list_with_delimiter(None).await.expect("list");
    assert_eq!(folded.common_prefixes, [Path::from("d")]);
    assert_eq!(s3.get_range(&Path::from("d/3"), 1..4).await.expect("range"), "ody".as_bytes());
    assert_eq!(s3.head(&Path::from("d/3")).await.expect("head").size, 6);
    let gone: Vec<_> =
        s3.delete_stream(futures::stream::iter(["d/1", "d/2"]).map(|k| Ok(Path::from(k))).boxed()).collect().await;
    assert!(gone.iter().all(Result::is_ok), "{gone:?}");
    assert_eq!(endpoint.keys("b"), ["d/0", "d/3", "d/4"]);
    assert!(endpoint.requests().iter().all(|r| r.signed));
}

#[tokio::test]
async fn parts_become_one_object_and_an_aborted_upload_nothing() {
    let endpoint = S3Endpoint::start(S3Settings::default()).await.expect("endpoint");
    let s3 = store(&endpoint, "sandbox-access");
    let upload = s3.put_multipart(&Path::from("big")).await.expect("upload");
    let mut writer = WriteMultipart::new_with_chunk_size(upload, 5 * 1024 * 1024);
    let body = vec![7_u8; 11 * 1024 * 1024];
    writer.write(&body);
    writer.finish().await.expect("finish");
    assert_eq!(endpoint.get("b", "big").expect("object").len(), body.len());
    let mut upload = s3.put_multipart(&Path::from("none")).await.expect("upload");
    upload.put_part("x".into()).await.expect("part");
    assert_eq!(endpoint.open_uploads(), 1);
    upload.abort().await.expect("abort");
    assert_eq!((endpoint.open_uploads(), endpoint.keys("b")), (0, vec!["big".to_owned()]));
}

#[tokio::test]
async fn other_buckets_and_hosts_are_refused_where_they_are_told_apart() {
    let settings = S3Settings { buckets: Some(vec!["a".to_owned()]), path_style_only: true, ..S3Settings::default() };
    let endpoint = S3Endpoint::start(settings).await.expect("endpoint");
    let none = store(&endpoint, "sandbox-access").put(&Path::from("k"), "v".into()).await;
    assert!(matches!(none, Err(object_store::Error::NotFound { .. })), "{none:?}");
    let refused = |request: &super::S3Request| request.bucket == "b" && request.status == 404 && !request.virtual_host;
    endpoint.until(|endpoint| endpoint.requests().iter().all(refused)).await;
    let client =
        reqwest::Client::builder().no_proxy().resolve("a.s3.test", endpoint.address()).build().expect("client");
    let url = format!("http://a.s3.test:{}/k", endpoint.address().port());
    assert_eq!(client.put(url).body("v").send().await.expect("answered").status().as_u16(), 400);
    assert_eq!(endpoint.keys("a"), Vec::<String>::new());
}

#[tokio::test]
async fn strangers_and_armed_refusals_are_refused() {
    let endpoint = S3Endpoint::start(S3Settings::default()).await.expect("endpoint");
    endpoint.put("b", "k", "v");
    let denied = store(&endpoint, "someone").get(&Path::from("k")).await;
    assert!(matches!(denied, Err(object_store::Error::PermissionDenied { .. })), "{denied:?}");
    endpoint.refuse_next("GET", "k", 404);
    let s3 = store(&endpoint, "sandbox-access");
    assert!(matches!(s3.get(&Path::from("k")).await, Err(object_store::Error::NotFound { .. })));
    assert_eq!(s3.get(&Path::from("k")).await.expect("get").bytes().await.expect("bytes"), "v".as_bytes());
}
