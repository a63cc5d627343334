//! Searches that take long.

use super::*;

/// An expression of three loops counted as a few thousand steps, whatever it cost: a pod held a
/// thread for minutes.
#[test]
fn costly_expressions_count_as_what_they_cost_and_take_a_thread_of_their_own() {
    let mut cluster = Cluster::with_class();
    let attributes: serde_json::Map<String, Value> =
        (0..30).map(|n| (format!("d{n}.example.com/a"), json!({"int": n}))).collect();
    let device = |n| json!({"name": format!("g{n}"), "attributes": attributes});
    cluster.slice("p", &on("a", (0..60).map(device).collect()));
    let pairs = "device.attributes.all(b, device.attributes.all(c, a != b || b != c || a == c))";
    let expression = format!("device.attributes.all(a, {pairs}) && false");
    cluster.ask("c", json!([exactly(json!({"selectors": selecting(&expression)}))]), json!([]));
    let claims = json!([{"name": "c", "resourceClaimName": "c"}]);
    let pod = cluster.pod("", json!({}), json!({"resourceClaims": claims}));
    let first = cluster.state.first.clone();
    let mut decision = Decision::new(cluster.state.view.clone(), pod, first);
    let (mut rng, mut n_costly) = (SmallRng::seed_from_u64(7), 0);
    let verdict = loop {
        n_costly += usize::from(decision.is_costly());
        if let Some(verdict) = decision.step(&mut rng) {
            break verdict;
        }
    };
    let Verdict::Refuse(refused) = verdict else { panic!("no device is selected") };
    let why = "1 cannot allocate all claims, 1 search for devices took too many steps";
    assert_eq!(refused.message, nothing(why));
    assert!((1..30).contains(&n_costly), "{n_costly}");
}
