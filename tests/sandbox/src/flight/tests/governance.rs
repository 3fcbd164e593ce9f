//! Tokens and connections: limits, eviction, expiry, one command at a time (D.2).

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::engine::ManualClock;
use crate::flight::FlightConfig;
use crate::testing::load;

const START_MS: i64 = 1_800_000_000_000;

async fn start(profile: Profile, flight: FlightConfig) -> (Sandbox, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(START_MS));
    let builder = builder().profile(profile).flight(flight).clock(Arc::clone(&clock) as _);
    (builder.start().await.expect("sandbox"), clock)
}

fn with(change: impl FnOnce(&mut FlightConfig)) -> FlightConfig {
    let mut config = FlightConfig::default();
    change(&mut config);
    config
}

async fn works(client: &mut Client) -> bool {
    client.execute("SHOW DATABASES".into(), None).await.is_ok()
}

#[tokio::test]
async fn each_build_tells_an_unknown_token_its_own_way() {
    for (profile, text) in [
        (Profile::V2_1, ""),
        (Profile::V3_1, ""),
        (Profile::V4_0, ""),
        (
            Profile::V5_0Binlog,
            "invalid bearer token: abcdefgh, try reconnect, bearer token may not be created, or may have been evict, ",
        ),
        (
            Profile::V5_0Changelog,
            "invalid bearer token, token id: abcd***: no Arrow Flight SQL session is open under it",
        ),
    ] {
        let (s, _) = start(profile, FlightConfig::default()).await;
        let mut unknown = client(s.addresses().fe_flight).await;
        unknown.set_token("abcdefgh".to_owned());
        let error = refused(&mut unknown, "SELECT 1").await;
        assert_eq!(error.code(), Code::Unauthenticated, "{profile}");
        assert!(
            error.message().starts_with(text) && error.message().is_empty() == text.is_empty(),
            "{profile} {error}"
        );
    }
}

#[tokio::test]
async fn the_token_used_longest_ago_leaves_a_full_cache() {
    for profile in [Profile::V2_1, Profile::V4_0] {
        let (s, _) = start(profile, with(|c| c.token_cache_size = Some(2))).await;
        let (mut first, mut second) = (login(&s).await, login(&s).await);
        assert!(works(&mut first).await);
        let mut third = login(&s).await;
        assert_eq!(s.open_flight_tokens(), 2);
        assert!(works(&mut first).await && works(&mut third).await, "{profile}");
        assert_eq!(refused(&mut second, "SHOW DATABASES").await.code(), Code::Unauthenticated, "{profile}");
    }
}

#[tokio::test]
async fn a_user_has_half_of_his_connections_as_tokens() {
    let (s, _) = start(Profile::V3_1, with(|c| c.max_user_connections = 4)).await;
    s.engine().set_user("other", "pw");
    let mut other = client(s.addresses().fe_flight).await;
    other.handshake("other", "pw").await.expect("login");
    let mut first = login(&s).await;
    let (mut second, mut third) = (login(&s).await, login(&s).await);
    assert_eq!(refused(&mut first, "SHOW DATABASES").await.code(), Code::Unauthenticated);
    assert!(works(&mut second).await && works(&mut third).await && works(&mut other).await);
    assert_eq!(s.open_flight_tokens(), 3);
}

#[tokio::test]
async fn a_token_has_an_age_in_builds_with_a_cache() {
    let life = with(|c| c.token_alive_time = Some(Duration::from_secs(600)));
    let (s, clock) = start(Profile::V5_0Binlog, life.clone()).await;
    let mut old = login(&s).await;
    assert!(works(&mut old).await);
    clock.advance(599_999);
    assert!(works(&mut old).await);
    clock.advance(1);
    let token = old.token().expect("token").clone();
    let error = refused(&mut old, "SHOW DATABASES").await;
    assert_eq!(error.code(), Code::Unauthenticated);
    assert_eq!(
        error.message(),
        format!(
            "bearer token expired: {token}, try reconnect, currently in fe.conf, `arrow_flight_token_alive_time`=10"
        )
    );
    assert_eq!(s.open_flight_tokens(), 0);

    let (s, clock) = start(Profile::V5_0Changelog, life).await;
    let mut old = login(&s).await;
    clock.advance(600_000);
    assert!(works(&mut old).await, "the newest build does not read the setting");
}

#[tokio::test]
async fn lives_and_sizes_follow_the_build() {
    for (profile, size, life_s, connections) in [
        (Profile::V2_1, 512, 259_200, 1024),
        (Profile::V3_1, 4096, 86_400, 4096),
        (Profile::V5_0Binlog, 4096, 86_400, 4096),
        (Profile::V5_0Changelog, 512, 86_400, 512),
    ] {
        let config = FlightConfig::default();
        assert_eq!(
            (config.cache_size(profile), config.token_life(profile).as_secs(), config.flight_connections(profile)),
            (size, life_s, connections),
            "{profile}"
        );
    }
}

#[tokio::test]
async fn an_idle_connection_ends_and_older_builds_make_no_second_one() {
    for profile in [Profile::V2_1, Profile::V5_0Binlog, Profile::V5_0Changelog] {
        let (s, clock) = start(profile, FlightConfig::default()).await;
        let mut client = login(&s).await;
        client.execute("SET wait_timeout = 100".into(), None).await.expect("set");
        clock.advance(100_000);
        assert!(works(&mut client).await, "{profile}: not yet");
        clock.advance(100_001);
        let error = refused(&mut client, "SHOW DATABASES").await;
        if profile == Profile::V5_0Changelog {
            assert_eq!(error.code(), Code::Unauthenticated);
            assert!(error.message().contains("ended by wait_timeout"), "{error}");
        } else {
            assert_eq!(error.code(), Code::Internal);
            assert!(
                error.message().contains("UserSession expire after access, try reconnect, bearer token id: "),
                "{error}"
            );
            assert!(error.message().contains("can only create a ConnectContext once."), "{error}");
            let gone = refused(&mut client, "SHOW DATABASES").await;
            assert_eq!(gone.code(), Code::Unauthenticated, "the token is invalid from now on");
        }
        assert_eq!((s.open_flight_tokens(), s.flight_connections().len()), (0, 0), "{profile}");
    }
}

#[tokio::test]
async fn an_idle_connection_ends_though_nobody_asks() {
    let (s, clock) = start(Profile::V5_0Changelog, FlightConfig::default()).await;
    let _client = login(&s).await;
    clock.advance(28_800_001);
    tokio::time::timeout(Duration::from_secs(60), s.until(|s| s.open_flight_tokens() == 0)).await.expect("swept");
}

#[tokio::test]
async fn older_builds_make_the_connection_at_the_first_command() {
    let (s, _) = start(Profile::V4_0, FlightConfig::default()).await;
    let mut client = login(&s).await;
    assert_eq!((s.open_flight_tokens(), s.flight_connections().len()), (1, 0));
    assert!(works(&mut client).await);
    assert_eq!(s.flight_connections().len(), 1);
    let (s, _) = start(Profile::V5_0Changelog, FlightConfig::default()).await;
    let _client = login(&s).await;
    assert_eq!(s.flight_connections().len(), 1);
}

#[tokio::test]
async fn a_full_pool_of_an_older_build_fails_the_command() {
    let limits = with(|c| {
        c.max_connections = Some(1);
        c.token_cache_size = Some(10);
        c.qe_max_connection = 1;
    });
    for (profile, text) in [
        (
            Profile::V3_1,
            "Register arrow flight sql connection failed, Unknown Error, the number of arrow flight bearer tokens should \
             be equal to arrow flight sql max connections, max connections: 1, used: 1.",
        ),
        (Profile::V2_1, "Reach limit of connections"),
    ] {
        let (s, _) = start(profile, limits.clone()).await;
        let (mut first, mut second) = (login(&s).await, login(&s).await);
        assert!(works(&mut first).await);
        let error = refused(&mut second, "SHOW DATABASES").await;
        assert_eq!(error.code(), Code::Internal, "{profile}");
        assert!(error.message().starts_with("get flight info statement failed, "), "{error}");
        assert!(error.message().ends_with(text), "{error}");
        close_session(&s, &first).await;
        let mut third = login(&s).await;
        assert!(works(&mut third).await, "{profile}: the place is free again");
    }
}

#[tokio::test]
async fn the_newest_build_refuses_at_the_handshake() {
    for (config, text) in [
        (
            with(|c| c.qe_max_connection = 2),
            "Reach limit of connections. Total: 2, User: 100, Current: 1, Arrow Flight SQL: 1",
        ),
        (
            with(|c| c.max_user_connections = 1),
            "Reach limit of connections. Total: 1024, User: 1, Current: 1, Arrow Flight SQL: 512",
        ),
        (
            with(|c| {
                c.qe_max_connection = 1;
                c.max_connections = Some(5);
            }),
            "Reach limit of connections. Total: 1, User: 100, Current: 1",
        ),
    ] {
        let (s, _) = start(Profile::V5_0Changelog, config).await;
        let mut first = login(&s).await;
        let mut raw = raw_client(s.addresses().fe_flight).await;
        let mut request = Request::new(futures::stream::iter([arrow_flight::HandshakeRequest::default()]));
        let value = format!("Basic {}", STANDARD_NO_PAD.encode("root:pw"));
        request.metadata_mut().insert("authorization", value.parse().expect("value"));
        let error = raw.handshake(request).await.expect_err("refused");
        assert_eq!((error.code(), error.message()), (Code::ResourceExhausted, text));
        assert!(works(&mut first).await, "nobody is evicted");
        close_session(&s, &first).await;
        let mut next = login(&s).await;
        assert!(works(&mut next).await);
    }
}

#[tokio::test]
async fn a_killed_connection_is_gone() {
    for profile in [Profile::V2_1, Profile::V5_0Changelog] {
        let (s, _) = start(profile, FlightConfig::default()).await;
        let mut client = login(&s).await;
        assert!(works(&mut client).await);
        let id = s.flight_connections()[0];
        s.execute(&format!("KILL QUERY {id}")).await.expect("nothing runs");
        assert!(works(&mut client).await, "the connection lives on");
        s.execute(&format!("KILL CONNECTION {id}")).await.expect("kill");
        let error = refused(&mut client, "SHOW DATABASES").await;
        let code = if profile == Profile::V2_1 { Code::Internal } else { Code::Unauthenticated };
        assert_eq!(error.code(), code, "{profile}");
        assert!(s.flight_connections().is_empty());
        assert!(s.execute(&format!("KILL {id}")).await.is_err(), "unknown by now");
    }
}

/// A sandbox with a load that a read of changes waits for.
async fn with_open_load() -> Sandbox {
    let s = sandbox().await;
    s.execute(
        "CREATE TABLE d.c (id INT) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 \
         PROPERTIES (\"replication_num\" = \"1\", \"changelog.enable\" = \"true\")",
    )
    .await
    .expect("table");
    let answer = load(&s, "c", &[("two_phase_commit", "true")], "1").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    s
}

const WAITING: &str = "SELECT id FROM d.c@incr('incrementType'='DETAIL')";

#[tokio::test]
async fn a_second_command_waits_as_long_as_a_query_may_run() {
    let s = with_open_load().await;
    let mut first = login(&s).await;
    for sql in ["SET query_timeout = 1", "SET change_visible_timeout_ms = 600000"] {
        first.execute(sql.into(), None).await.expect("set");
    }
    let mut second = client(s.addresses().fe_flight).await;
    second.set_token(first.token().expect("token").clone());
    let running = tokio::spawn(async move { first.execute(WAITING.into(), None).await.map(|_| ()) });
    while s.requests().matching(Site::FeFlight, "@incr").is_empty() {
        tokio::task::yield_now().await;
    }
    let error = refused(&mut second, "SHOW DATABASES").await;
    assert_eq!(error.code(), Code::Unavailable);
    assert!(
        error.message().starts_with(
            "another command of this Arrow Flight SQL session is still running after 1 seconds, connection id: "
        ),
        "{error}"
    );
    // Closing the session does not wait for its command.
    close_session(&s, &second).await;
    let ended = status(running.await.expect("task").expect_err("cancelled"));
    assert_eq!(ended.code(), Code::Internal);
    assert!(ended.message().contains("session closed by client (CloseSession)"), "{ended}");
}
