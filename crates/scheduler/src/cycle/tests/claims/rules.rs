//! Rules that taint devices.

use super::*;
use crate::plugins::claims::TaintRule;

impl Cluster {
    /// A rule, by its selector and the effect of its taint; returns whether it may matter.
    fn rule(&mut self, selector: Value, effect: &str) -> bool {
        let taint = json!({"key": "broken", "value": "yes", "effect": effect});
        let rule = json!({"spec": {"deviceSelector": selector, "taint": taint}});
        self.state.view.inventory.put_rule(&"rule".into(), TaintRule::read(&rule))
    }
}

#[test]
fn rules_taint_the_devices_that_they_select() {
    let mut cluster = Cluster::with_class();
    cluster.slice("p", &on("a", json!([gpu("one", "x", 0), gpu("two", "x", 0)])));
    let mut n = 0;
    let mut check = |selector: Value, effect: &str, tolerations: Value| {
        let may_matter = cluster.rule(selector, effect);
        n += 1;
        let name = format!("c{n}");
        let request = exactly(json!({"tolerations": tolerations}));
        cluster.ask(&name, json!([request]), json!([]));
        let devices = cluster.devices(&[&name]);
        // It is given back.
        cluster.state.view.inventory.put_claim(&Request::new("default", &*name), None);
        (devices, may_matter)
    };
    let found = |device: &str, may_matter: bool| (format!("r=p/{device}"), may_matter);
    let none = || (nothing("2 cannot allocate all claims"), true);
    assert_eq!(check(json!({"device": "one"}), "NoSchedule", json!([])), found("two", true));
    assert_eq!(check(json!({"driver": DRIVER}), "NoExecute", json!([])), none());
    assert_eq!(check(json!({}), "NoSchedule", json!([])), none());
    let all = json!([{"key": "broken", "operator": "Exists"}]);
    assert_eq!(check(json!({}), "NoExecute", all), found("one", true));
    let other = json!([{"key": "broken", "value": "no"}]);
    assert_eq!(check(json!({"pool": "p"}), "NoExecute", other), none());
    assert_eq!(check(json!({"pool": "q"}), "NoExecute", json!([])), found("one", true));
    // One without a selector selects nothing, and one without effect forbids nothing.
    assert_eq!(check(Value::Null, "NoExecute", json!([])), found("one", true));
    assert_eq!(check(json!({}), "None", json!([])), found("one", false));
}
