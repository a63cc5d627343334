//! Two replicas beside a control plane in this process.

use k8s_openapi::api::core::v1::ConfigMap;
use replicas::{APP, STAMP, SUMMARY, manager};
use serde_json::json;
use setpoint::kube_client::Api;
use setpoint::kube_client::api::{ListParams, PostParams};
use setpoint::prelude::*;
use setpoint::testenv::{TestEnv, matches};
use std::collections::BTreeMap;

const N_MAPS: usize = 20;

/// How many maps each replica has stamped, once all maps are stamped.
async fn stamps(env: &TestEnv) -> BTreeMap<String, usize> {
    let maps = Api::<ConfigMap>::default_namespaced(env.client());
    let of_app = ListParams::default().labels(APP);
    env.eventually("every map is stamped", async || {
        let mut stamps = BTreeMap::new();
        for map in maps.list(&of_app).await.ok()? {
            *stamps.entry(map.annotations().get(STAMP)?.clone()).or_default() += 1;
        }
        (stamps.values().sum::<usize>() == N_MAPS).then_some(stamps)
    })
    .await
}

#[setpoint::test]
async fn replicas_share_the_work_and_one_takes_over_when_the_other_stops(
    env: &TestEnv,
) -> Result<(), BoxError> {
    env.run(manager(env.manager(), "a")?);
    let (other, stop) = (manager(env.manager(), "b")?, CancellationToken::new());
    let other = other.run(stop.clone());
    let test = async {
        let maps = Api::<ConfigMap>::default_namespaced(env.client());
        let summarized = |replica: &'static str, n: usize| {
            let text = n.to_string();
            matches("counts them", move |summary| summary["data"][replica] == json!(text))
        };
        // Both are members before there is work.
        env.eventually("both have joined", async || {
            let leases =
                Api::<setpoint::k8s_openapi::api::coordination::v1::Lease>::default_namespaced(
                    env.client(),
                );
            let members = leases.list(&ListParams::default()).await.ok()?;
            (members.items.len() == 3).then_some(())
        })
        .await;
        for n in 0..N_MAPS {
            let map = json!({"metadata": {"name": format!("map-{n}"), "labels": {APP: "demo"}}});
            maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
        }
        let stamps_of_both = stamps(env).await;
        assert_eq!(stamps_of_both.keys().collect::<Vec<_>>(), ["a", "b"], "both have a share");
        // The leader counts, whichever it is.
        env.until(&maps, SUMMARY, summarized("a", stamps_of_both["a"])).await;

        stop.cancel();
        env.until(&maps, SUMMARY, summarized("a", N_MAPS)).await;
        assert_eq!(stamps(env).await, BTreeMap::from([("a".to_owned(), N_MAPS)]));
        Ok::<_, BoxError>(())
    };
    let (ended, tested) = tokio::join!(other, test);
    ended?;
    tested
}
