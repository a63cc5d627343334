use super::*;

fn read(text: &str) -> Result<String, String> {
    let gates: Result<FeatureGates, _> = text.parse();
    gates.map(|gates| gates.to_string()).map_err(|error| error.to_string())
}

#[test]
fn rows_are_sorted_and_names_are_found() {
    assert!(ROWS.is_sorted_by(|a, b| a.name < b.name));
    assert_eq!(ALL.len(), ROWS.len());
    for feature in Feature::all() {
        assert_eq!(Feature::named(feature.name()), Some(feature));
    }
    assert_eq!(Feature::named("Gone"), None);
    let fixed = FeatureGates::from([Feature::KMSv1]).with(Feature::PortForwardWebsockets, false);
    assert_eq!(fixed, FeatureGates::default());
    assert!(NEEDS.is_sorted_by(|(a, _), (b, _)| a.name() < b.name()));
}

#[test]
fn the_last_value_of_a_gate_counts_and_its_own_more_than_that_of_all() {
    let check = |text: &str, expected: &str| {
        assert_eq!(read(text).as_deref(), Ok(expected));
        // What is shown is read as the same.
        assert_eq!(read(expected).as_deref(), Ok(expected));
    };
    check("", "");
    check("WatchList=true", "");
    check("CBORServingAndStorage=true", "CBORServingAndStorage=true");
    check("CBORServingAndStorage=true, CBORServingAndStorage=false", "");
    check("kube:CBORServingAndStorage=1", "CBORServingAndStorage=true");
    check("kube:WatchList=F,GenericWorkload=T", "GenericWorkload=true,WatchList=false");
    let alpha: FeatureGates = "AllAlpha=true,CBORServingAndStorage=false".parse().unwrap();
    assert!(alpha.is_on(Feature::GangScheduling) && !alpha.is_on(Feature::CBORServingAndStorage));
    assert!(!alpha.is_on(Feature::ClusterTrustBundle) && !alpha.is_on(Feature::MemoryQoS));
    let beta: FeatureGates = "WatchList=true,AllBeta=false".parse().unwrap();
    assert!(beta.is_on(Feature::WatchList) && !beta.is_on(Feature::HostnameOverride));
    // What cannot be turned off stays.
    assert!(beta.is_on(Feature::PortForwardWebsockets));
}

#[test]
fn a_gate_is_refused_that_cannot_have_its_value() {
    let check = |text: &str, expected: &str| assert_eq!(read(text), Err(expected.to_owned()));
    check("A=true", "unrecognized feature gate: A");
    check("WatchList", "missing bool value for WatchList");
    check(
        "WatchList=maybe",
        r#"invalid value of WatchList=maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax"#,
    );
    check(
        "WatchList=",
        r#"invalid value of WatchList=, err: strconv.ParseBool: parsing "": invalid syntax"#,
    );
    check(
        "JobSuccessPolicy=false",
        "cannot set feature gate JobSuccessPolicy to false, feature is locked to true",
    );
    assert_eq!(read("JobSuccessPolicy=true").as_deref(), Ok(""));
    check(
        "PortForwardWebsockets=false",
        "cannot set feature gate PortForwardWebsockets to false: setpoint cannot turn it off",
    );
    check("KMSv1=true", "cannot set feature gate KMSv1 to true: setpoint does not have it");
    for (gates, feature) in [
        ("GangScheduling=true", "GangScheduling"),
        ("AllAlpha=true,GenericWorkload=false", "DRAWorkloadResourceClaims"),
    ] {
        let why = "is enabled, but depends on features that are disabled: [GenericWorkload]";
        check(gates, &format!("{feature} {why}"));
    }
    check(
        "ContainerRestartRules=false,NodeDeclaredFeatures=false,\
         InPlacePodLevelResourcesVerticalScaling=false,\
         InPlacePodVerticalScalingInitContainers=false",
        "RestartAllContainersOnContainerExits is enabled, but depends on features that are disabled: [ContainerRestartRules NodeDeclaredFeatures]",
    );
    // What other programs do has no effect.
    assert_eq!(read("MemoryQoS=true").as_deref(), Ok("MemoryQoS=true"));
}

/// The names in backquotes of a line that begins so.
fn names<'a>(page: &'a str, line: &str) -> Vec<&'a str> {
    let line = page.lines().find_map(|found| found.strip_prefix(line)).unwrap();
    line.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_page_lists_the_features() {
    let page = include_str!("../../../../docs/feature-gates.md");
    for feature in Feature::all().filter(|feature| feature.is_switch(Release::PRESENT)) {
        let stage = format!("{:?}", feature.row().stage).to_lowercase();
        let default = if feature.is_on_by_default(Release::PRESENT) { "on" } else { "off" };
        let row = format!("| `{}` | {stage} | {default} | ", feature.name());
        assert!(page.contains(&row), "{row}");
    }
    for (line, is_on) in [("| always on |", true), ("| not here |", false)] {
        let is_fixed = |row: &&Row| row.here == Here::Fixed && row.is_on == is_on;
        let fixed: Vec<_> = ROWS.iter().filter(is_fixed).map(|row| row.name).collect();
        assert_eq!(names(page, line), fixed);
    }
}
