//! A resource quota under many writers, on a server that is killed.

use super::writers::{ask, create, stored, until, write_while};
use crate::server::Server;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

const SECRETS: &str = "/api/v1/namespaces/shop/secrets";
const QUOTA: &str = "/api/v1/namespaces/shop/resourcequotas/q";
/// The limit.
const HARD: usize = 120;

fn start(data: &Path) -> Server {
    Server::start_with(&["--data".as_ref(), data.as_os_str()])
}

fn used(server: &Server) -> usize {
    let quota = ask(server, "GET", QUOTA, &Value::Null);
    let used = quota.body["status"]["used"]["count/secrets"].as_str().unwrap_or_default();
    used.parse().unwrap()
}

/// Waits until the quota says what is stored, and returns it.
#[track_caller]
fn settled(server: &Server) -> usize {
    let started = Instant::now();
    loop {
        let (n, used) = (stored(server, SECRETS).len(), used(server));
        assert!(n <= used && used <= HARD, "{n} are stored, {used} are used");
        if n == used {
            return n;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "{n} are stored, {used} are used");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_quota_is_kept_by_many_writers_and_by_a_server_that_is_killed() {
    let data = tempfile::tempdir().unwrap();
    let mut server = start(data.path());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    create(&server, "/api/v1/namespaces", &namespace);
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"count/secrets": HARD.to_string()}}});
    create(&server, "/api/v1/namespaces/shop/resourcequotas", &quota);
    let is_counted =
        |answer: &super::writers::Answered| answer.body["status"]["used"]["count/secrets"] == "0";
    until(&server, "GET", QUOTA, &Value::Null, is_counted);

    // Killed three times while they write.
    for round in 0..3 {
        let target = HARD * (round + 1) / 4;
        let answers = write_while(&server, SECRETS, ("Secret", &format!("r{round}")), || {
            while stored(&server, SECRETS).len() < target {
                std::thread::yield_now();
            }
            server.signal("KILL");
        });
        assert!(answers.iter().all(|(_, answer)| [0, 201, 403].contains(&answer.code)));
        let made: Vec<String> =
            answers.into_iter().filter(|(_, a)| a.code == 201).map(|(n, _)| n).collect();
        server = start(data.path());
        let n = settled(&server);
        let names: Vec<Value> =
            stored(&server, SECRETS).iter().map(|s| s["metadata"]["name"].clone()).collect();
        assert!(
            made.iter().all(|name| names.contains(&json!(name))),
            "acknowledged ones are stored"
        );
        assert!(n >= target, "{n} of {target}");
    }

    // Up to the limit, and not beyond it; nothing of it is lost.
    for round in 0..2 {
        let answers = write_while(&server, SECRETS, ("Secret", &format!("full{round}")), || {
            while stored(&server, SECRETS).len() < HARD {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(300));
        });
        assert_eq!(settled(&server), HARD);
        let refused = answers.iter().filter(|(_, answer)| answer.code != 201);
        let mut n_refused = 0;
        for (_, answer) in refused {
            assert!(answer.shown().contains("exceeded quota: q"), "{}", answer.shown());
            n_refused += 1;
        }
        assert!(n_refused > 0);
        for secret in stored(&server, SECRETS).iter().take(HARD / 3) {
            let path = format!("{SECRETS}/{}", super::writers::name(secret));
            assert_eq!(ask(&server, "DELETE", &path, &Value::Null).code, 200);
        }
        assert_eq!(settled(&server), HARD - HARD / 3);
    }
}
