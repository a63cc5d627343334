use super::*;
use crate::connection::Protocol::{Http1, Http2};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::time::{sleep, timeout};

const LONG: Duration = Duration::from_secs(900);

async fn overdue(pace: &Pace) -> (Overdue, Duration) {
    let begun = Instant::now();
    (pace.overdue().await, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn new_connection_owes_its_first_head_mgr_23() {
    let limits = Limits::default();
    assert_eq!(overdue(&Pace::new(Http1, &limits)).await, (Overdue::Head, limits.head_max));
    assert_eq!(overdue(&Pace::new(Http2, &limits)).await, (Overdue::Head, limits.head_max));
}

#[tokio::test(start_paused = true)]
async fn quiet_connection_is_overdue_after_its_idle_time_mgr_23() {
    let limits = Limits::default();
    for protocol in [Http1, Http2] {
        // One that answers is never, and idles anew from its answer.
        let pace = Pace::new(protocol, &limits);
        let answering = pace.request();
        assert!(timeout(LONG, pace.overdue()).await.is_err());
        drop(answering);
        assert_eq!(overdue(&pace).await, (Overdue::Request, limits.idle_max));
    }
}

#[tokio::test(start_paused = true)]
async fn head_of_a_request_has_its_own_time_mgr_23() {
    let limits = Limits::default();
    let (mut peer, end) = duplex(8);
    let pace = Pace::new(Http1, &limits);
    let mut end = pace.watch(end);
    drop(pace.request());
    sleep(limits.idle_max / 2).await;
    peer.write_all(b"P").await.unwrap();
    assert_eq!(end.read_u8().await.unwrap(), b'P');
    assert_eq!(overdue(&pace).await, (Overdue::Head, limits.head_max));
    // Once the head is there, its time is over.
    let _answering = pace.request();
    assert!(timeout(LONG, pace.overdue()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn over_http2_only_the_whole_preface_and_then_requests_count() {
    let limits = Limits::default();
    let (mut peer, end) = duplex(1024);
    let pace = Pace::new(Http2, &limits);
    let mut end = pace.watch(end);
    peer.write_all(&[0; 23]).await.unwrap();
    end.read_exact(&mut [0; 23]).await.unwrap();
    assert_eq!(overdue(&pace).await, (Overdue::Head, limits.head_max));
    peer.write_all(&[0; 1]).await.unwrap();
    end.read_u8().await.unwrap();
    drop(pace.request());
    let pings = async {
        for _ in 0..3 {
            sleep(limits.idle_max / 4).await;
            peer.write_all(&[0; 17]).await.unwrap();
            end.read_exact(&mut [0; 17]).await.unwrap();
            end.write_all(&[0; 17]).await.unwrap();
        }
    };
    let (late, ()) = tokio::join!(overdue(&pace), pings);
    assert_eq!(late, (Overdue::Request, limits.idle_max));

    // One that has sent no request yet has no longer than for a head.
    let limits = Limits { http2_idle_max: None, ..limits };
    let pace = Pace::new(Http2, &limits);
    pace.0.lock().has_read(24);
    assert_eq!(overdue(&pace).await, (Overdue::Request, limits.head_max));

    let pace = Pace::new(Http2, &limits);
    drop(pace.request());
    assert!(timeout(LONG, pace.overdue()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn peer_that_takes_nothing_in_is_given_up_and_a_slow_one_is_not() {
    let limits = Limits::default();
    let (mut slow, end) = duplex(8);
    let pace = Pace::new(Http1, &limits);
    let mut end = pace.watch(end);
    // The answer is made; it is still on its way.
    drop(pace.request());
    let reading = async {
        for _ in 0..8 {
            sleep(STALL_MAX - Duration::from_secs(1)).await;
            slow.read_exact(&mut [0; 8]).await.unwrap();
        }
    };
    let writing = async { tokio::join!(end.write_all(&[0; 64]), reading).0 };
    tokio::select! {
        written = writing => written.unwrap(),
        overdue = pace.overdue() => panic!("{overdue:?}"),
    }
    // The last bytes were taken in last; from there it idles.
    assert!(pace.0.lock().idle_since.elapsed() < STALL_MAX);

    let stall = async {
        tokio::select! { _ = end.write_all(&[0; 64]) => None, late = overdue(&pace) => Some(late) }
    };
    assert_eq!(stall.await, Some((Overdue::Taking, STALL_MAX)));
    // Also while it answers.
    let _answering = pace.request();
    assert_eq!(overdue(&pace).await, (Overdue::Taking, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn stall_in_another_task_is_seen() {
    let (_deaf, end) = duplex(8);
    let pace = Pace::new(Http1, &Limits::default());
    let mut end = pace.watch(end);
    let _talking = pace.request();
    let mut tasks = tokio::task::JoinSet::new();
    let waiting = pace.clone();
    tasks.spawn(async move { overdue(&waiting).await });
    tokio::task::yield_now().await;
    assert!(timeout(LONG, end.write_all(&[0; 64])).await.is_err());
    let seen = tasks.join_next().await.unwrap().unwrap();
    assert_eq!(seen, (Overdue::Taking, STALL_MAX));
}
