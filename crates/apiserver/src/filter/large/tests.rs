use super::*;
use futures::{FutureExt as _, StreamExt as _};

const MIB: usize = 1 << 20;

fn user(name: &str) -> Arc<str> {
    name.into()
}

#[tokio::test]
async fn trees_of_a_simulation_are_made_on_the_callers_thread() {
    let thread = || std::thread::current().id();
    for in_place in [true, false] {
        let made = LargeAnswers::new(in_place).run_blocking(thread).await;
        assert_eq!(made.unwrap() == thread(), in_place);
    }
}

/// All permits of a user.
async fn all_of(large: &LargeAnswers, name: &str) -> Vec<Permit> {
    let mut permits = Vec::new();
    for _ in 0..LISTS_PER_USER_MAX {
        permits.push(large.acquire(&user(name), MIB).await.unwrap());
    }
    permits
}

#[tokio::test(start_paused = true)]
async fn a_user_without_a_permit_waits_a_second_and_gets_429() {
    let large = LargeAnswers::default();
    let _held = all_of(&large, "a").await;
    let begun = Instant::now();
    let refused = large.acquire(&user("a"), MIB).await.unwrap_err();
    assert_eq!((refused.code(), begun.elapsed()), (429, WAIT_MAX));
    assert_eq!(refused.0.details.unwrap().retry_after_seconds, 1);
    // Others are not affected.
    assert!(large.acquire(&user("b"), MIB).now_or_never().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_free_permit_goes_to_the_user_with_the_fewest() {
    let large = LargeAnswers::default();
    let mut held = Vec::new();
    for name in ["a", "b", "c", "d"] {
        held.push(all_of(&large, name).await);
    }
    let (name_a, name_e) = (user("a"), user("e"));
    let first = large.acquire(&name_a, MIB);
    let second = large.acquire(&name_e, MIB);
    let (mut first, mut second) = (std::pin::pin!(first), std::pin::pin!(second));
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    // One of b's.
    held[1].pop();
    assert!(second.now_or_never().unwrap().is_ok());
    assert!(first.now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn too_many_waiting_requests_are_refused_at_once() {
    let large = LargeAnswers::default();
    let name = user("a");
    let _held = all_of(&large, "a").await;
    let mut waiting: Vec<_> =
        (0..WAITING_PER_USER_MAX).map(|_| Box::pin(large.acquire(&name, MIB))).collect();
    assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
    assert_eq!(large.acquire(&name, MIB).now_or_never().unwrap().unwrap_err().code(), 429);
    // A dropped request makes room.
    waiting.pop();
    assert!(large.acquire(&name, MIB).now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn bytes_are_limited_per_user_and_in_total_and_one_answer_is_always_possible() {
    let large = LargeAnswers::default();
    let huge = large.acquire(&user("a"), BYTES_MAX * 2).await.unwrap();
    assert_eq!(large.acquire(&user("a"), MIB).await.unwrap_err().code(), 429);
    assert_eq!(large.acquire(&user("b"), MIB).await.unwrap_err().code(), 429);
    drop(huge);
    let rooms: Vec<_> =
        (0..BYTES_PER_USER_MAX / MIB).map(|_| large.reserve(&user("a"), MIB).unwrap()).collect();
    assert_eq!(large.reserve(&user("a"), MIB).unwrap_err().code(), 429);
    // The answer of a completed write is sent.
    drop(large.reserve_at_once(&user("a"), MIB));
    drop(rooms);
    assert_eq!(large.0.state.lock().all.bytes, 0);
    assert!(large.0.state.lock().users.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_not_read_ends_and_releases_its_permit() {
    let large = LargeAnswers::default();
    let permit = large.acquire(&user("a"), MIB).await.unwrap();
    let chunks = futures::stream::repeat_with(|| Ok(vec![0; 1024]));
    let mut sending = Box::pin(permit.send(chunks));
    let chunk = sending.next().await.unwrap().unwrap();
    let checking = tokio::time::timeout(READ_STALL_MAX + CHECK_PERIOD * 2, large.end_slow());
    assert!(checking.await.is_err(), "it goes on checking");
    assert_eq!(large.0.state.lock().all.permits, 0);
    assert!(matches!(sending.next().await, Some(Err(BodyError::Slow))));
    assert!(sending.next().await.is_none());
    // The transport still has the chunk.
    assert_eq!(large.0.state.lock().all.bytes, 1024);
    drop((chunk, sending));
    let state = large.0.state.lock();
    assert_eq!((state.all.bytes, state.sending.len(), state.users.len()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_read_slowly_ends_after_a_minute() {
    let large = LargeAnswers::default();
    let permit = large.acquire(&user("a"), MIB).await.unwrap();
    let chunks = futures::stream::repeat_with(|| Ok(vec![0; 1024]));
    let mut sending = Box::pin(permit.send(chunks));
    let checking = large.end_slow();
    let reading = async {
        let begun = Instant::now();
        while sending.next().await.unwrap().is_ok() {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        begun.elapsed()
    };
    tokio::select! {
        () = checking => unreachable!(),
        took = reading => assert!(took >= SENDING_MAX && took <= SENDING_MAX + Duration::from_secs(15)),
    }
}
