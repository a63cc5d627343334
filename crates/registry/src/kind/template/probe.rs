//! Probes and hooks of containers.
use crate::kind::at::At;
use crate::kind::format;
use serde_json::Value;

/// The probes of a container.
pub(super) fn probes(at: &At<'_, '_>, grace: Option<i64>) {
    for member in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = at.given(member) else { continue };
        handler(&probe, grace, &["exec", "httpGet", "tcpSocket", "grpc"]);
        for member in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            probe.get(member).not_negative();
        }
        let own_grace = probe.get("terminationGracePeriodSeconds");
        own_grace.positive("must be greater than 0");
        if member == "readinessProbe" {
            if own_grace.is_set() {
                own_grace.invalid("must not be set for readinessProbes");
            }
        } else if probe.int_of("successThreshold") != 1 {
            probe
                .get("successThreshold")
                .invalid_as(&probe.int_of("successThreshold").into(), "must be 1");
        }
    }
}

/// The hooks of a container, and the signal that ends it.
pub(super) fn lifecycle(at: &At<'_, '_>, grace: Option<i64>, os: &str) {
    for member in ["postStart", "preStop"] {
        if let Some(hook) = at.given(member) {
            handler(&hook, grace, &["exec", "httpGet", "tcpSocket", "sleep"]);
        }
    }
    let Some(signal) = at.given("stopSignal") else { return };
    match os {
        "" => signal.forbidden("may not be set for containers with empty `spec.os.name`"),
        "windows" => signal.one_of_if_set(&["SIGKILL", "SIGTERM"]),
        "linux" if !is_signal(signal.text()) => signal.unsupported(&SIGNALS),
        _ => {}
    }
}

/// One handler of those that a probe or a hook can have.
fn handler(at: &At<'_, '_>, grace: Option<i64>, members: &[&str]) {
    let mut given = members.iter().filter_map(|member| at.given(member));
    let Some(first) = given.next() else {
        return at.required("must specify a handler type");
    };
    one_handler(at, &first, grace, members);
    for further in given {
        further.forbidden("may not specify more than 1 handler type");
    }
}
/// The handler that counts: the first one.
fn one_handler(at: &At<'_, '_>, first: &At<'_, '_>, grace: Option<i64>, members: &[&str]) {
    match members.iter().find(|member| at.has(member)) {
        Some(&"exec") => {
            first.get("command").need();
        }
        Some(&"httpGet") => {
            first.get("path").need();
            format::port_or_name(&first.get("port"));
            first.get("scheme").choice(&["HTTP", "HTTPS"]);
            let headers = first.get("httpHeaders");
            for header in first.list_of("httpHeaders") {
                let name = &header["name"];
                for fault in format::header_name(name.as_str().unwrap_or_default()) {
                    headers.invalid_as(name, fault);
                }
            }
        }
        Some(&"sleep") => {
            let seconds = first.int_of("seconds");
            if let Some(grace) = grace.filter(|grace| !(0..=*grace).contains(&seconds)) {
                first.invalid_as(
                    &Value::from(seconds),
                    format!(
                        "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                    ),
                );
            }
        }
        _ => format::port_or_name(&first.get("port")),
    }
}

fn is_signal(name: &str) -> bool {
    SIGNALS.contains(&name)
}
/// The signals of Linux that can end a container, sorted.
const SIGNALS: [&str; 65] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGRTMAX-1",
    "SIGRTMAX-10",
    "SIGRTMAX-11",
    "SIGRTMAX-12",
    "SIGRTMAX-13",
    "SIGRTMAX-14",
    "SIGRTMAX-2",
    "SIGRTMAX-3",
    "SIGRTMAX-4",
    "SIGRTMAX-5",
    "SIGRTMAX-6",
    "SIGRTMAX-7",
    "SIGRTMAX-8",
    "SIGRTMAX-9",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];
