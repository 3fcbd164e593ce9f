use std::path::Path;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, SslOpts};
use reqwest::redirect::Policy;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::engine::Profile;
use crate::sandbox::{Sandbox, SandboxBuilder};
use crate::testing::{builder, http, raw};
use crate::tls::Tls;

async fn start(tls: Tls) -> Sandbox {
    builder().tls(tls).start().await.expect("sandbox")
}

fn client(ca_pem: &str) -> reqwest::Client {
    http();
    let ca = reqwest::Certificate::from_pem(ca_pem.as_bytes()).expect("certificate");
    reqwest::Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .tls_built_in_root_certs(false)
        .add_root_certificate(ca)
        .build()
        .expect("client")
}

fn pem(s: &Sandbox) -> String {
    s.ca_pem().expect("authority").to_owned()
}

#[tokio::test]
async fn an_fe_with_https_redirects_plain_calls_and_serves_them_over_tls() {
    let s = start(Tls { http: true, ..Tls::default() }).await;
    let https = s.addresses().fe_https.expect("port");
    assert_eq!(s.fenodes(), format!("127.0.0.1:{}", https.port()));
    let path = "/api/query/default_cluster/d";
    let request =
        format!("POST {path}?x=1 HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let answer = raw(s.addresses().fe_http, &request).await;
    assert!(answer.starts_with("HTTP/1.1 307"), "{answer}");
    assert!(answer.contains(&format!("location: https://localhost:{}{path}?x=1\r\n", https.port())), "{answer}");
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("https://{host}:{}{path}", https.port());
        let sent = client(&pem(&s)).post(url).basic_auth("root", Some("pw")).body(r#"{"stmt":"SELECT 1 AS x"}"#);
        let answer = sent.send().await.expect("answer").text().await.expect("text");
        assert!(answer.contains("\"name\":\"x\""), "{answer}");
    }
    // What is not redirected is served plainly too.
    let answer = http().get(format!("http://{}/api/health", s.addresses().fe_http)).send().await.expect("answer");
    assert_eq!(answer.status(), 200);
}

async fn location(builder: SandboxBuilder) -> String {
    let s = builder.start().await.expect("sandbox");
    let sent = client(&pem(&s))
        .put(format!("https://{}/api/d/dup/_stream_load", s.fenodes()))
        .basic_auth("root", Some("pw"))
        .header("expect", "100-continue");
    let answer = sent.send().await.expect("answer");
    assert_eq!(answer.status(), 307);
    answer.headers()["location"].to_str().expect("text").replace(&s.benodes(), "BE")
}

#[tokio::test]
async fn the_redirect_to_a_backend_names_the_scheme_of_the_build() {
    let fe_only = Tls { http: true, ..Tls::default() };
    let both = Tls { be_http: true, ..fe_only };
    let path = "root:pw@BE/api/d/dup/_stream_load";
    assert_eq!(location(builder().tls(fe_only)).await, format!("http://{path}"));
    assert_eq!(location(builder().tls(fe_only).profile(Profile::V3_1)).await, format!("https://{path}"));
    assert_eq!(location(builder().tls(both)).await, format!("https://{path}"));
}

#[tokio::test]
async fn a_backend_with_tls_loads_over_it_and_a_wrong_authority_is_refused() {
    let s = start(Tls { be_http: true, ..Tls::default() }).await;
    let url = format!("https://{}/api/d/dup/_stream_load", s.benodes());
    let sent = client(&pem(&s)).put(&url).basic_auth("root", Some("pw")).body("1\ta\t1");
    let answer: serde_json::Value = sent.send().await.expect("answer").json().await.expect("json");
    assert_eq!(answer["Status"], "Success", "{answer}");
    let other = start(Tls { be_http: true, ..Tls::default() }).await;
    assert!(client(&pem(&other)).put(&url).send().await.is_err());
    assert!(http().put(url.replace("https", "http")).send().await.is_err());
}

fn mysql_options(s: &Sandbox, tls: Option<SslOpts>) -> Opts {
    let address = s.addresses().mysql;
    let options = OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .prefer_socket(false)
        .user(Some("root"))
        .pass(Some("pw"))
        .ssl_opts(tls);
    Opts::from(options)
}

fn trusting(ca: &str) -> SslOpts {
    SslOpts::default().with_disable_built_in_roots(true).with_root_certs(vec![ca.as_bytes().to_vec().into()])
}

#[tokio::test]
async fn mysql_offers_tls_and_serves_plain_connections_too() {
    let s = start(Tls { mysql: true, ..Tls::default() }).await;
    for tls in [Some(trusting(&pem(&s))), None] {
        let mut conn = Conn::new(mysql_options(&s, tls)).await.expect("connection");
        let one: Option<i64> = conn.query_first("SELECT n FROM (SELECT 1 AS n) t").await.expect("row");
        assert_eq!(one, Some(1));
    }
    let other = start(Tls { mysql: true, ..Tls::default() }).await;
    assert!(Conn::new(mysql_options(&s, Some(trusting(&pem(&other))))).await.is_err());
}

#[tokio::test]
async fn mysql_can_insist_on_tls_and_refuse_it() {
    let s = start(Tls { mysql: true, mysql_required: true, ..Tls::default() }).await;
    assert!(Conn::new(mysql_options(&s, Some(trusting(&pem(&s))))).await.is_ok());
    match Conn::new(mysql_options(&s, None)).await {
        Err(mysql_async::Error::Server(error)) => assert_eq!(error.code, 3159),
        other => panic!("{other:?}"),
    }
    let plain = start(Tls { flight: true, ..Tls::default() }).await;
    assert!(Conn::new(mysql_options(&plain, Some(trusting(&pem(&plain))))).await.is_err());
}

async fn channel(address: std::net::SocketAddr, ca: &str) -> Result<Channel, tonic::transport::Error> {
    http();
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)).domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{address}")).expect("endpoint");
    endpoint.tls_config(tls).expect("tls").connect().await
}

#[tokio::test]
async fn flight_speaks_tls_on_both_sides_and_names_it_in_locations() {
    use arrow_flight::sql::client::FlightSqlServiceClient;
    use futures::TryStreamExt;

    let s = start(Tls { flight: true, ..Tls::default() }).await;
    s.execute("INSERT INTO d.dup VALUES (1, 'a', 1)").await.expect("insert");
    let ca = pem(&s);
    let mut fe = FlightSqlServiceClient::new(channel(s.addresses().fe_flight, &ca).await.expect("channel"));
    fe.handshake("root", "pw").await.expect("login");
    let info = fe.execute("SELECT id FROM d.dup".to_owned(), None).await.expect("info");
    let endpoint = &info.endpoint[0];
    assert_eq!(endpoint.location[0].uri, format!("grpc+tls://127.0.0.1:{}", s.addresses().be_flight.port()));
    let mut be = FlightSqlServiceClient::new(channel(s.addresses().be_flight, &ca).await.expect("channel"));
    let stream = be.do_get(endpoint.ticket.clone().expect("ticket")).await.expect("stream");
    let batches: Vec<_> = stream.try_collect().await.expect("rows");
    assert_eq!(batches.iter().map(|b| b.num_rows()).sum::<usize>(), 1);

    let other = start(Tls { flight: true, ..Tls::default() }).await;
    assert!(channel(s.addresses().fe_flight, &pem(&other)).await.is_err());
}

#[tokio::test]
async fn the_command_line_writes_the_authority() {
    let file = std::env::temp_dir().join(format!("doris-sandbox-ca-{}.pem", crate::random::uuid()));
    let args =
        crate::cli::SandboxArgs::parse_from_list(&["--tls", "http,flight", "--tls-ca-out", &file.to_string_lossy()]);
    let s = args.start().await.expect("sandbox");
    let written = tokio::fs::read_to_string(Path::new(&file)).await.expect("file");
    tokio::fs::remove_file(&file).await.expect("removed");
    assert_eq!(Some(written.as_str()), s.ca_pem());
    assert!(s.addresses().fe_https.is_some());
}
