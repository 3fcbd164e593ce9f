//! What happens to the network and to the nodes.

use std::cell::Cell;
use std::time::Duration;

use doris_sandbox::s3_endpoint::S3Endpoint;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::random::Random;
use crate::server::{BACKENDS, KNOWN_FRONTENDS, Server};

/// Faults that wait at once; then they make room for others, since some wait for requests that are rare.
const MOST_ARMED: usize = 8;

fn status(code: u16) -> Value {
    json!({"type": "status", "code": code, "body": "{\"msg\":\"unknown\",\"code\":1,\"data\":\"out of order\",\"count\":0}"})
}

/// A fault of one request of the shell: two of three break a connection.
pub fn fault(random: &mut Random) -> Value {
    let fe = format!("fe{}", random.within(0..KNOWN_FRONTENDS as u64));
    let skip = random.within(0..3);
    let drop_answer = || json!({"type": "drop_answer"});
    let cut_answer = |bytes: u64| json!({"type": "cut_answer_after_bytes", "bytes": bytes});
    // Smaller than the smallest compressed body of a load.
    let cut_body = json!({"type": "cut_after_bytes", "bytes": random.within(0..40)});
    let load = "/_stream_load ";
    let batches = random.within(0..3);
    let of_fe = |site: &str, action: Value, when: &str| json!({"action": action, "site": site, "node": fe, "when": when, "skip": skip});
    let of_be = |site: &str, action: Value, when: &str| json!({"action": action, "site": site, "when": when, "skip": skip.min(1)});
    match random.within(0..33) {
        // Bodies of loads, and lost answers: whatever happens there, an epoch is whole or nothing.
        0..3 => of_be("be", cut_body, load),
        3..6 => of_be("be", drop_answer(), load),
        6 => of_be("be", cut_answer(random.within(0..200)), load),
        7..10 => of_be("be", drop_answer(), "_stream_load_2pc"),
        10 => of_be("be", cut_answer(random.within(0..40)), "_stream_load_2pc"),
        // Reads of changes and snapshots.
        11..14 => of_be("be_flight", json!({"type": "flight_cut_after_batches", "batches": batches.min(1)}), "doget"),
        14 => of_fe("fe_flight", drop_answer(), ""),
        // Anything else that an FE is asked.
        15..17 => of_fe("fe", drop_answer(), ""),
        17 => of_fe("fe", cut_answer(random.within(0..60)), ""),
        18 => of_fe("fe", drop_answer(), "get_load_state"),
        19 if random.chance(50) => of_fe("mysql", drop_answer(), "offsets"),
        19 => of_fe("mysql", drop_answer(), "with label"),
        // No cuts, but as bad.
        20 => of_be("be", status(503), load),
        21 => of_be("be", status(500), "_stream_load_2pc"),
        22 => of_fe("fe", status(503), ""),
        23 => of_fe("fe", status(502), "get_load_state"),
        24 => {
            let nowhere =
                json!({"type": "redirect", "location": "http://root:@127.0.0.1:9/api/sync/audit/_stream_load"});
            of_fe("fe", nowhere, "_stream_load")
        }
        25 => of_fe("fe_flight", json!({"type": "token_gone"}), ""),
        26 => {
            of_be("be_flight", json!({"type": "flight_error_after_batches", "batches": batches, "message": "gone"}), "")
        }
        27 => of_be("be", json!({"type": "publish_timeout"}), "_stream_load_2pc"),
        28 => of_be("be", json!({"type": "fail_commit", "message": "no quorum"}), "_stream_load_2pc"),
        // Statements that take staged rows.
        29 => of_fe("mysql", drop_answer(), "with label"),
        30 => of_fe("mysql", json!({"type": "fail_commit", "message": "no quorum"}), "with label"),
        31 => of_fe("mysql", json!({"type": "publish_timeout"}), "with label"),
        _ => of_fe("fe_flight", status(14), "select"),
    }
}

/// Arms faults as they are used up.
pub async fn network(server: &Server, mut random: Random) {
    loop {
        if server.applied().await.armed >= MOST_ARMED {
            server.disarm().await;
        }
        server.arm(&fault(&mut random)).await;
        sleep(Duration::from_millis(random.within(100..300))).await;
    }
}

/// Refuses requests to the object store: of the shell, which asks again, and of the BEs, whose statement fails.
pub async fn store(s3: &S3Endpoint, mut random: Random) {
    loop {
        let (method, status) = *random.pick(&[("PUT", 503), ("PUT", 500), ("GET", 503)]);
        // One at a time: those that nobody has met would meet all attempts of a later statement.
        s3.pardon();
        s3.refuse_next(method, "_sync_staged_", status);
        sleep(Duration::from_millis(random.within(500..2500))).await;
    }
}

/// Stops, pauses and restarts nodes, and elects masters, until it is told to stop.
pub async fn nodes(server: &Server, mut random: Random, outages: &Cell<usize>, stop: &Cell<bool>) {
    while !stop.get() {
        sleep(Duration::from_millis(random.within(1500..4000))).await;
        let (kind, many) = *random.pick(&[("fe", KNOWN_FRONTENDS), ("be", BACKENDS)]);
        let node = format!("/nodes/{kind}/{}", random.within(0..many as u64));
        let (down, up) = *random.pick(&[("stop", "restart"), ("stop", "restart"), ("pause", "resume")]);
        server.post(&format!("{node}/{down}")).await;
        outages.set(outages.get() + 1);
        if random.chance(30) {
            server.post(&format!("/master/{}", random.within(0..3))).await;
        }
        sleep(Duration::from_millis(random.within(50..700))).await;
        server.post(&format!("{node}/{up}")).await;
    }
}

/// Brings everything back.
pub async fn heal(server: &Server) {
    server.disarm().await;
    let state = server.get("/state").await;
    for node in state["nodes"].as_array().expect("nodes") {
        let name = node["node"].as_str().expect("a name");
        let path = format!("/nodes/{}/{}", &name[..2], &name[2..]);
        match node["state"].as_str() {
            Some("stopped") => drop(server.post(&format!("{path}/restart")).await),
            Some("paused") => drop(server.post(&format!("{path}/resume")).await),
            _ => {}
        }
    }
}
