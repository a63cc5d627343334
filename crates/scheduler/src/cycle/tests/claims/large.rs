//! Pools of very many devices.

use super::*;

const SLICES: usize = 200;
const DEVICES: usize = 50;

/// The steps of a decision about a new pod with a claim, and where it goes.
fn steps(cluster: &mut Cluster, claim: &str) -> (usize, String) {
    let claims = json!([{"name": claim, "resourceClaimName": claim}]);
    let pod = cluster.pod("", json!({}), json!({"resourceClaims": claims}));
    let first = cluster.state.first.clone();
    let mut decision = Decision::new(cluster.state.view.clone(), pod, first);
    let (mut rng, mut n_steps) = (SmallRng::seed_from_u64(7), 0);
    loop {
        n_steps += 1;
        match decision.step(&mut rng) {
            Some(Verdict::Place(node)) => return (n_steps, node.to_string()),
            Some(Verdict::Refuse(refused)) => return (n_steps, refused.message),
            None => {}
        }
    }
}

fn put_pool(cluster: &mut Cluster, device_name: impl Fn(usize, usize) -> String) {
    for slice in 0..SLICES {
        let devices = (0..DEVICES).map(|device| gpu(&device_name(slice, device), "x", 0));
        let mut of_pool = on("a", devices.collect());
        of_pool["spec"]["pool"] =
            json!({"name": "p", "generation": 1, "resourceSliceCount": SLICES});
        cluster.slice(&format!("s{slice:03}"), &of_pool);
    }
}

/// The first look was one piece of work: of a pool of a million devices, a fifth of a second.
#[test]
fn a_look_at_very_many_devices_is_made_in_steps() {
    let mut cluster = Cluster::with_class();
    put_pool(&mut cluster, |slice, device| format!("g{slice}-{device}"));
    cluster.ask("c", json!([exactly(json!({}))]), json!([]));
    let (n_first, place) = steps(&mut cluster, "c");
    assert_eq!(place, "a");
    // A device costs at least two of the 4,096 small steps.
    assert!(n_first >= SLICES * DEVICES * 2 / 4096, "{n_first}");
    // What holds for all nodes is known now.
    let (n_second, place) = steps(&mut cluster, "c");
    assert_eq!(place, "a");
    assert!(n_second < n_first, "{n_second} {n_first}");
}

#[test]
fn one_name_twice_among_very_many_devices_makes_a_pool_invalid() {
    let mut cluster = Cluster::with_class();
    put_pool(&mut cluster, |slice, device| match (slice, device) {
        (199, 49) => "g0-0".to_owned(),
        _ => format!("g{slice}-{device}"),
    });
    cluster.ask("c", json!([exactly(json!({}))]), json!([]));
    let invalid = "1 cannot allocate all claims, 1 invalid resource pools were encountered";
    assert_eq!(steps(&mut cluster, "c").1, nothing(invalid));
    // Names need to be distinct on each node only.
    let mut elsewhere = on("b", json!([gpu("g0-0", "x", 0)]));
    elsewhere["spec"]["pool"] = json!({"name": "p", "generation": 1, "resourceSliceCount": SLICES});
    cluster.slice("s199", &elsewhere);
    assert_eq!(steps(&mut cluster, "c").1, "a");
}
