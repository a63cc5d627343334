use super::*;
use std::net::Ipv4Addr;

fn tracked(name: &str, list: List, state: State) -> Tracked {
    let is_running = matches!(state, State::Running(_));
    let container = Container { name: name.to_owned(), ..Container::default() };
    Tracked {
        policy: list.policy(&container, None),
        container,
        list,
        state,
        last: None,
        n_restarts: 0,
        id: "x".to_owned(),
        is_started: is_running,
        is_ready: is_running,
        is_live: is_running,
    }
}

fn waiting() -> State {
    State::Waiting { reason: "PodInitializing".to_owned(), message: String::new() }
}

fn running() -> State {
    State::Running(Timestamp::from_secs(1))
}

fn ended(code: i32) -> State {
    State::Ended(Ended {
        code,
        reason: "Error",
        message: String::new(),
        started_at: None,
        finished_at: Timestamp::from_secs(2),
    })
}

fn view<R>(containers: &[Tracked], is_ending: bool, look: impl FnOnce(View<'_>) -> R) -> R {
    let addresses = PodAddresses { pod: Ipv4Addr::new(127, 64, 0, 1), host: Ipv4Addr::LOCALHOST };
    let now = Timestamp::from_secs(5);
    let pod = Pod::default();
    look(View {
        pod: &pod,
        containers,
        addresses,
        began: now,
        now,
        verdict: None,
        is_ending,
        is_restarting_all: false,
    })
}

#[test]
fn the_phase_follows_from_the_containers() {
    use List::{Init, Main, Sidecar};
    let phase = |containers: &[Tracked]| view(containers, false, |view| view.phase());
    assert_eq!(phase(&[tracked("a", Main, waiting())]), "Pending");
    assert_eq!(phase(&[tracked("a", Main, running())]), "Running");
    assert_eq!(phase(&[tracked("a", Main, running()), tracked("b", Main, waiting())]), "Pending");
    // It starts again.
    assert_eq!(phase(&[tracked("a", Main, ended(1))]), "Running");
    let policy = |list: List| list.policy(&Container::default(), Some("Never"));
    let never = |code| Tracked { policy: policy(Main), ..tracked("a", Main, ended(code)) };
    assert_eq!(phase(&[never(0)]), "Succeeded");
    assert_eq!(phase(&[never(0), never(3)]), "Failed");
    assert_eq!(phase(&[tracked("s", Sidecar, running()), never(0)]), "Running");
    assert_eq!(phase(&[tracked("i", Init, running()), tracked("a", Main, waiting())]), "Pending");
    let failed = Tracked { policy: policy(Init), ..tracked("i", Init, ended(1)) };
    assert_eq!(phase(&[failed, tracked("a", Main, waiting())]), "Failed");
    let ending = |containers: &[Tracked]| view(containers, true, |view| view.phase());
    assert_eq!(ending(&[tracked("a", Main, running())]), "Running");
    assert_eq!(ending(&[tracked("a", Main, ended(143))]), "Failed");
    assert_eq!(ending(&[tracked("a", Main, ended(0))]), "Succeeded");
}

#[test]
fn a_pod_is_initialized_once_its_sidecars_have_started() {
    use List::{Main, Sidecar};
    let is_initialized =
        |containers: &[Tracked]| view(containers, false, |view| view.is_initialized());
    let starting = Tracked { is_started: false, ..tracked("s", Sidecar, running()) };
    assert!(!is_initialized(&[starting.clone(), tracked("a", Main, waiting())]));
    let started = tracked("s", Sidecar, running());
    assert!(is_initialized(&[started, tracked("a", Main, waiting())]));
    // It has ended and starts again.
    assert!(is_initialized(&[starting, tracked("a", Main, running())]));
}

#[test]
fn a_pod_that_ends_runs_until_its_last_process_has_ended() {
    use List::{Main, Sidecar};
    let phase = |containers: &[Tracked]| view(containers, true, |view| view.phase());
    // Its hook after the start has not ended.
    let in_hook = Tracked { is_live: true, ..tracked("a", Main, waiting()) };
    assert_eq!(phase(&[in_hook]), "Pending");
    assert_eq!(phase(&[tracked("s", Sidecar, running()), tracked("a", Main, ended(0))]), "Running");
}

#[test]
fn an_init_container_that_is_done_is_ready() {
    use List::{Init, Main};
    for (code, is_ready) in [(0, true), (1, false)] {
        let containers = [tracked("i", Init, ended(code)), tracked("a", Main, waiting())];
        let (status, _) = view(&containers, false, |view| view.status(&Conditions::new()));
        assert_eq!(status["initContainerStatuses"][0]["ready"], is_ready);
        assert_eq!(status["containerStatuses"][0]["ready"], false);
    }
}

#[test]
fn conditions_keep_the_time_of_their_change() {
    let containers = [tracked("a", List::Main, running())];
    let mut before = Conditions::new();
    before.insert("Ready".to_owned(), ("True".to_owned(), "then".to_owned()));
    let (status, conditions) = view(&containers, false, |view| view.status(&before));
    assert_eq!(conditions["Ready"], ("True".to_owned(), "then".to_owned()));
    assert_eq!(conditions["Initialized"].1, "1970-01-01T00:00:05Z");
    assert_eq!(status["containerStatuses"][0]["containerID"], "process://x");
    assert_eq!(status["podIP"], "127.64.0.1");
}
