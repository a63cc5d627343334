use super::*;
use crate::envtest::flags::Takes;

fn translated(line: &str, environment: &Environment) -> Result<Translated, String> {
    let takes = |name: &str| flag(name).map(|(takes, _)| takes);
    let arguments = line.split_whitespace().map(OsString::from);
    let given = parse("kube-apiserver", Style::Pflag, arguments, takes).unwrap();
    translate(&given, environment).map_err(|error| error.to_string())
}

fn options(line: &str) -> Vec<String> {
    let translated = translated(line, &Environment::default()).unwrap();
    translated.options.into_iter().map(|option| option.into_string().unwrap()).collect()
}

#[test]
fn table_is_sorted_and_free_of_removed_flags() {
    assert!(FLAGS.is_sorted_by_key(|(name, ..)| *name));
    assert!(flag("insecure-port").is_none());
}

#[test]
fn every_flag_of_up_is_one_of_up() {
    for (name, takes, used) in FLAGS {
        let value = match (*used, *name) {
            (Same, _) if *takes == Takes::Bool => "=T",
            (Same | List, "secure-port" | "audit-log-maxage" | "audit-log-maxbackup") => "=1",
            (Same | List, "audit-log-maxsize") => "=1",
            (Same | List, "advertise-address") => "=10.0.0.1",
            (Same | List, "goaway-chance") => "=0.01",
            (Same, "http2-max-streams-per-connection" | "min-request-timeout") => "=1",
            (Same, name) if name.ends_with("-toleration-seconds") => "=1",
            (Same, name)
                if ["-period", "-duration", "-deadline"].iter().any(|end| name.ends_with(end)) =>
            {
                "=1s"
            }
            (Same, "request-timeout") => "=1s",
            (List, "tls-curve-preferences") => "=23",
            (List, "tls-sni-cert-key") => "=a,b",
            (Same | List, "kubelet-port" | "peer-advertise-port") => "=10250",
            (Same | List, name) if name.ends_with("-inflight") => "=1",
            (Same | List, name) if name.ends_with("-ttl") => "=1m",
            (Same, name) if name.starts_with("audit-") => match name {
                name if name.ends_with("-mode") => "=blocking-strict",
                name if name.ends_with("-wait") || name.ends_with("-backoff") => "=1s",
                name if name.ends_with("-file") => "=/f",
                "audit-log-format" => "=legacy",
                _ => "=1",
            },
            (Same | List, "service-account-max-token-expiration") => "=1h",
            (Same | List, "service-cluster-ip-range") => "=10.0.0.0/24",
            (Same | List, "service-node-port-range") => "=30000-32767",
            (Same, "storage-media-type") => "=application/json",
            (Same, "emulated-version" | "min-compatibility-version") => "=kube=1.34",
            (Same | List, _) => "=x",
            (Own | Ignored(_) | Always, _) => continue,
        };
        let parsed = UpOptions::try_parse_from(["p".to_owned(), format!("--{name}{value}")]);
        if let Err(error) = parsed {
            // Some need another one.
            let kind = error.kind();
            assert_eq!(kind, clap::error::ErrorKind::MissingRequiredArgument, "{name}: {error}");
        }
    }
}

#[test]
fn boolean_flags_of_up_may_have_values() {
    let booleans = FLAGS.iter().filter(|row| matches!(row, (_, Takes::Bool, Same)));
    for (name, ..) in booleans {
        for value in ["", "=true", "=F"] {
            let parsed = UpOptions::try_parse_from(["p".to_owned(), format!("--{name}{value}")]);
            let fault = parsed.err().map(|error| error.kind());
            let missing = Some(clap::error::ErrorKind::MissingRequiredArgument);
            assert!(fault.is_none() || fault == missing, "--{name}{value}: {fault:?}");
        }
        let parsed = UpOptions::try_parse_from(["p".to_owned(), format!("--{name}=x")]);
        assert_eq!(parsed.unwrap_err().kind(), clap::error::ErrorKind::ValueValidation, "{name}");
    }
}

#[test]
fn flags_that_up_lacks_have_a_tip() {
    let tip = |line: &[&str]| {
        let parsed = UpOptions::try_parse_from([&["p"], line].concat());
        crate::envtest::tip(&parsed.unwrap_err())
    };
    for (name, _, used) in FLAGS {
        let flag = format!("--{name}");
        let is_lacking = matches!(used, Ignored(_) | Always);
        assert_eq!(super::tip(&flag).is_some(), is_lacking || LACKING.contains(name), "{name}");
        if is_lacking {
            let tip = tip(&[&format!("{flag}=1")]).unwrap();
            assert!(tip.starts_with(&format!("{flag} is a flag of kube-apiserver")), "{tip}");
        }
    }
    assert_eq!(tip(&["--nope"]), None);
    assert_eq!(tip(&["--secure-port=x"]), None);
}

/// Those with a tip of their own.
const LACKING: [&str; 3] = ["admission-control", "enable-garbage-collector", "logging-format"];

#[test]
fn refused_value_is_named_with_the_possible_ones() {
    let parsed = UpOptions::try_parse_from(["p", "--audit-log-mode=foo"]);
    let message = message(&parsed.unwrap_err());
    let start = "invalid value 'foo' for '--audit-log-mode <MODE>' [possible values: batch, ";
    assert!(message.starts_with(start), "{message}");
    assert!(!message.contains('\n') && !message.contains("--help"), "{message}");
}

/// The page lists all flags that are options of `setpoint up`, and none without effect.
#[test]
fn compatibility_names_every_flag_of_up() {
    let page = include_str!("../../../../../docs/compatibility.md");
    let (_, section) = page.split_once("## Flags of kube-apiserver").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let named: Vec<&str> =
        section.split('`').skip(1).step_by(2).filter_map(|text| text.strip_prefix("--")).collect();
    let is_named = |flag: &str| {
        named.iter().any(|name| match name.strip_suffix('*') {
            Some(prefix) => flag.starts_with(prefix),
            None => *name == flag,
        })
    };
    let served = FLAGS.iter().filter(|(.., used)| matches!(used, Same | List));
    let missing: Vec<&str> =
        served.map(|(name, ..)| *name).filter(|name| !is_named(name)).collect();
    assert!(missing.is_empty(), "docs/compatibility.md does not name {missing:?}");
    let ignored = FLAGS.iter().filter(|(.., used)| matches!(used, Ignored(_)));
    let wrong: Vec<&str> =
        ignored.map(|(name, ..)| *name).filter(|name| named.contains(name)).collect();
    assert!(wrong.is_empty(), "docs/compatibility.md names {wrong:?}, which have no effect");
}

#[test]
fn flags_of_envtest_become_options_of_up() {
    let line = "--allow-privileged=true --authorization-mode=RBAC --bind-address=127.0.0.1 \
        --cert-dir=/c --client-ca-file=/c/ca.crt --disable-admission-plugins=ServiceAccount \
        --etcd-servers=http://127.0.0.1:5 --secure-port=6 --service-account-issuer=https://a/ \
        --service-account-key-file=/c/sa.crt --service-account-signing-key-file=/c/sa.key \
        --service-cluster-ip-range=10.0.0.0/24";
    let translated = translated(line, &Environment::default()).unwrap();
    assert_eq!(translated.etcd_servers, ["http://127.0.0.1:5"]);
    assert_eq!(translated.cert_dir.as_deref(), Some(Path::new("/c")));
    assert_eq!(
        options(line),
        [
            "--disable-admission-plugins=ServiceAccount",
            "--service-account-issuer=https://a/",
            "--service-account-key-file=/c/sa.crt",
            "--allow-privileged=true",
            "--client-ca-file=/c/ca.crt",
            "--secure-port=6",
            "--service-account-signing-key-file=/c/sa.key",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--bind-address=127.0.0.1",
            "--authorization-mode=RBAC",
            "--controllers=",
        ]
    );
}

#[test]
fn the_last_of_repeated_flags_counts_and_lists_add_up() {
    let line = "--secure-port=1 --secure-port=2 --enable-admission-plugins=A \
        --enable-admission-plugins=B,C --token-auth-file= --enable-bootstrap-token-auth \
        --audit-policy-file=/p --authorization-mode=Node,RBAC --enable-garbage-collector=false";
    assert_eq!(
        options(line),
        [
            "--enable-admission-plugins=A",
            "--enable-admission-plugins=B,C",
            "--audit-policy-file=/p",
            "--enable-bootstrap-token-auth=true",
            "--secure-port=2",
            "--bind-address=0.0.0.0",
            "--allow-privileged=false",
            "--authorization-mode=Node,RBAC",
            "--controllers=",
        ]
    );
    let given = translated(&format!("{line} --v=2"), &Environment::default()).unwrap().given;
    for (flag, value) in [
        ("secure-port", "2"),
        ("enable-admission-plugins", "[A,B,C]"),
        ("authorization-mode", "[Node,RBAC]"),
        ("enable-garbage-collector", "false"),
        ("v", "2"),
    ] {
        assert_eq!(given[flag], value, "{flag}");
    }
}

#[test]
fn serve_adds_only_flags_that_are_not_given() {
    let takes = |name: &str| flag(name).map(|(takes, _)| takes);
    let read = |flags: &[&str]| {
        let flags = flags.iter().map(OsString::from);
        parse("kube-apiserver", Style::Pflag, flags, takes).unwrap()
    };
    let mut given = read(&["--authorization-mode=Node,AlwaysAllow", "--secure-port=1"]);
    add_missing(&mut given, read(&SERVE));
    let kept = "--authorization-mode=Node,AlwaysAllow --secure-port=1 --allow-privileged=true \
        --bind-address=127.0.0.1 --disable-admission-plugins=ServiceAccount";
    assert_eq!(given, read(&kept.split_whitespace().collect::<Vec<_>>()));
    let mut given = read(&["--authorization-config=/f"]);
    add_missing(&mut given, read(&SERVE));
    let kept = "--authorization-config=/f --allow-privileged=true --bind-address=127.0.0.1 \
        --disable-admission-plugins=ServiceAccount --secure-port=0";
    assert_eq!(given, read(&kept.split_whitespace().collect::<Vec<_>>()));
}

#[test]
fn the_environment_chooses_controllers_and_nodes() {
    let of = |line: &str, controllers: &str, nodes: &str, default_controllers| {
        let some = |text: &str| Some(text.to_owned());
        let environment = Environment {
            controllers: some(controllers),
            default_controllers,
            nodes: some(nodes),
            ..Environment::default()
        };
        let options = translated(line, &environment).unwrap().options;
        let options: Vec<_> = options.iter().map(|o| o.to_str().unwrap().to_owned()).collect();
        options[3..].join(" ")
    };
    let last = |controllers: &str, nodes: &str| of("", controllers, nodes, CONTROLLERS_OF_SERVE);
    assert_eq!(last("none", ""), "--controllers=");
    assert_eq!(last("*,-job", "3"), "--controllers=*,-job --nodes=3");
    let both = "--controllers=namespace-controller,garbage-collector-controller";
    assert_eq!(last("", ""), both);
    let kept = of("--enable-garbage-collector=false", "", "", CONTROLLERS_OF_SERVE);
    assert_eq!(kept, "--controllers=namespace-controller");
    assert_eq!(of("", "", "", &[]), "--controllers=");
}

#[test]
fn the_environment_names_published_documents() {
    let openapi = |files: &str| {
        let environment = Environment { openapi: Some(files.into()), ..Environment::default() };
        translated("", &environment).unwrap().options
    };
    let given = openapi("/a.json:/folder");
    assert!(given.windows(4).any(|o| o == ["--openapi", "/a.json", "--openapi", "/folder"]));
    assert!(!openapi("").contains(&"--openapi".into()));
}

#[test]
fn maps_are_checked_and_gates_have_an_effect() {
    let why = |line| translated(line, &Environment::default()).map(|t| t.ignored[0].1.clone());
    let given_gates = "--feature-gates=WatchList=false,Gone=false,PortForwardWebsockets=false";
    assert_eq!(why(given_gates).unwrap(), "unrecognized feature gate: Gone");
    let given = |line| translated(line, &Environment::default()).unwrap();
    let cbor = given("--feature-gates=CBORServingAndStorage=true");
    assert!(cbor.ignored.is_empty());
    let has = |translated: &Translated, wanted: &str| {
        translated.options.iter().any(|option| option == wanted)
    };
    let gate = "--feature-gates=CBORServingAndStorage=true";
    assert!(has(&cbor, gate));
    let some = given(given_gates);
    assert!(has(&some, "--feature-gates=WatchList=false"), "{:?}", some.options);
    assert_eq!(
        some.ignored[1].1,
        "cannot set feature gate PortForwardWebsockets to false: setpoint cannot turn it off"
    );
    // The order does not matter.
    let bundles = "--runtime-config=certificates.k8s.io/v1beta1=true";
    let both = format!("{bundles} --feature-gates=ClusterTrustBundle=true");
    let on = given(&both);
    assert!(on.ignored.is_empty() && has(&on, bundles), "{:?}", on.options);
    assert!(!has(&given(bundles), bundles));
    let off = given("--feature-gates=AllAlpha=true,CBORServingAndStorage=false");
    assert!(!has(&off, gate));
    assert!(why("--runtime-config=x/v1beta1=true").unwrap().contains("no kinds of such"));
    let all = given("--runtime-config=api/all");
    assert!(all.options.iter().any(|given| given == "--runtime-config=api/all=true"));
    let off = given("--runtime-config=apps/v1=false,batch/v1/jobs,x/v1beta1=true");
    let option = "--runtime-config=apps/v1=false,batch/v1/jobs=true";
    assert!(off.options.iter().any(|given| given == option), "{:?}", off.options);
    assert_eq!(
        why("--feature-gates=A=maybe").unwrap_err(),
        r#"invalid argument "A=maybe" for "--feature-gates" flag: invalid value of A=maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax"#
    );
    assert_eq!(
        why("--feature-gates=A").unwrap_err(),
        r#"invalid argument "A" for "--feature-gates" flag: missing bool value for A"#
    );
}
