//! The Linux back end against the kernel, in a network namespace that each test makes for itself.

use network::backend::{Backend, BackendError, Desired, LinuxBackend, Owner};
use std::future::Future;
use std::process::Command;

/// Runs a test on a thread that has left for a network namespace of its own; the namespace goes
/// with the thread.
fn in_new_namespace<F: Future<Output = ()>>(test: impl FnOnce(LinuxBackend) -> F + Send + 'static) {
    let thread = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
            .expect("a network namespace of the test's own needs CAP_SYS_ADMIN: run as root, or leave out the feature netns-tests");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (backend, connection) = LinuxBackend::open().unwrap();
            tokio::select! {
                () = connection => panic!("the netlink connection ended"),
                () = test(backend) => {}
            }
        });
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// What `ip` says of the bridges here: name, state and IPv4 addresses.
fn bridges() -> String {
    let output = Command::new("ip")
        .args(["-br", "-4", "address"])
        .output()
        .expect("the tool ip (iproute2) is needed");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("spn"));
    lines
        .map(|line| {
            line.split_whitespace()
                .filter(|word| *word != "DOWN" && *word != "UP" && *word != "UNKNOWN")
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect::<Vec<_>>()
        .join("\n")
}

fn owner(uid: &str) -> Owner {
    Owner { uid: uid.into(), name: format!("default/{uid}") }
}

fn desired(cidr: &str, gateway: &str) -> Desired {
    Desired { subnet: cidr.parse().unwrap(), gateway: gateway.parse().unwrap() }
}

#[test]
fn bridge_has_the_gateway_address_follows_edits_and_goes_away() {
    in_new_namespace(async |backend| {
        let owner = owner("9f2c");
        let device = LinuxBackend::device(&owner);
        let first = backend.ensure(&owner, desired("192.168.0.0/16", "192.168.0.1")).await.unwrap();
        assert_eq!((first.device.as_str(), first.changed), (device.as_str(), true));
        assert_eq!(bridges(), format!("{device} 192.168.0.1/16"));
        let held = backend.get(&owner).await.unwrap().unwrap();
        assert_eq!(
            (held.desired, held.device),
            (desired("192.168.0.0/16", "192.168.0.1"), device.clone())
        );

        let again = backend.ensure(&owner, desired("192.168.0.0/16", "192.168.0.1")).await.unwrap();
        assert!(!again.changed, "nothing to do the second time");

        assert!(
            backend.ensure(&owner, desired("192.168.1.0/24", "192.168.1.1")).await.unwrap().changed
        );
        assert_eq!(bridges(), format!("{device} 192.168.1.1/24"), "the old address is gone");

        assert!(backend.release(&owner).await.unwrap());
        assert_eq!(bridges(), "");
        assert!(!backend.release(&owner).await.unwrap(), "freed before");
    });
}

#[test]
fn range_of_another_bridge_is_refused_until_it_is_freed() {
    in_new_namespace(async |backend| {
        backend.ensure(&owner("a"), desired("10.1.0.0/16", "10.1.0.1")).await.unwrap();
        let refused = backend.ensure(&owner("b"), desired("10.1.2.0/24", "10.1.2.1")).await;
        assert!(matches!(refused, Err(BackendError::Overlap { .. })), "{refused:?}");
        backend.release(&owner("a")).await.unwrap();
        backend.ensure(&owner("b"), desired("10.1.2.0/24", "10.1.2.1")).await.unwrap();
        assert_eq!(bridges(), format!("{} 10.1.2.1/24", LinuxBackend::device(&owner("b"))));
    });
}

#[test]
fn half_made_bridge_is_completed() {
    in_new_namespace(async |backend| {
        // As after a crash between the link and its address.
        let device = LinuxBackend::device(&owner("a"));
        assert!(
            Command::new("ip")
                .args(["link", "add", &device, "type", "bridge"])
                .status()
                .unwrap()
                .success()
        );
        assert!(
            backend.ensure(&owner("a"), desired("10.1.0.0/16", "10.1.0.1")).await.unwrap().changed
        );
        assert_eq!(bridges(), format!("{device} 10.1.0.1/16"));
    });
}
