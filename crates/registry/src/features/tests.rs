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
fn a_release_has_the_gates_that_it_had() {
    let release = |minor| Emulation::of(Release::of_minor(minor)).unwrap();
    let (in_33, in_35) = (release(33), release(35));
    assert!(HISTORY.is_sorted_by(|(a, _), (b, _)| a < b));
    let gates = FeatureGates::emulating(in_33);
    // Later, off by default, on by default, and always on here.
    for (feature, is_on) in [
        (Feature::ConstrainedImpersonation, false),
        (Feature::WatchList, false),
        (Feature::DynamicResourceAllocation, false),
        (Feature::HPAConfigurableTolerance, false),
        (Feature::RelaxedDNSSearchValidation, true),
        (Feature::PortForwardWebsockets, true),
    ] {
        assert_eq!(gates.is_on(feature), is_on, "{feature:?}");
    }
    let stage_of = |gates: FeatureGates, feature| {
        gates.known().find(|(known, _)| *known == feature).map(|(_, stage)| stage)
    };
    assert_eq!(stage_of(gates, Feature::ConstrainedImpersonation), None);
    assert_eq!(stage_of(gates, Feature::ComponentFlagz), Some("ALPHA"));
    assert_eq!(stage_of(FeatureGates::default(), Feature::ComponentFlagz), Some("BETA"));
    let read = |text: &str, emulation| {
        let gates = FeatureGates::parse(text, emulation);
        gates.map(|gates| gates.to_string()).map_err(|error| error.to_string())
    };
    assert_eq!(
        read("ConstrainedImpersonation=true", in_33).unwrap_err(),
        "cannot set feature gate ConstrainedImpersonation to true, feature is PreAlpha at emulated \
         version 1.33, min compatibility version 1.33"
    );
    // Locked since 1.35, and since 1.36.
    let off =
        "cannot set feature gate DynamicResourceAllocation to false, feature is locked to true";
    assert_eq!(read("DynamicResourceAllocation=false", in_35).unwrap_err(), off);
    let on = "DynamicResourceAllocation=true";
    assert_eq!(read(on, in_33).as_deref(), Ok(on));
    assert_eq!(read("ImageVolume=false", in_35).as_deref(), Ok("ImageVolume=false"));
    assert!(read("ImageVolume=false", Emulation::default()).is_err());
    // Those that are beta then.
    let beta = FeatureGates::parse("AllBeta=false", in_35).unwrap();
    assert!(!beta.is_on(Feature::ImageVolume) && beta.is_on(Feature::DynamicResourceAllocation));
}

#[test]
fn the_page_of_releases_lists_what_changed() {
    let page = include_str!("../../../../docs/emulation.md");
    let past = ROWS.iter().filter(|row| row.here == Here::Past).map(|row| row.name);
    // The line begins with the first of them.
    let first = past.clone().next().unwrap();
    let line = page.lines().find(|line| line.starts_with(&format!("`{first}`"))).unwrap();
    let listed: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
    assert_eq!(listed, past.collect::<Vec<_>>());
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
