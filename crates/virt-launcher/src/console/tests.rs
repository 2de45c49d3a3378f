use proptest::prelude::*;
use tokio::io::{DuplexStream, duplex};

use super::*;

/// A port, and the guest behind it.
fn port() -> (Console, DuplexStream) {
    let (ours, guest) = duplex(PIECE);
    let (read, write) = tokio::io::split(ours);
    (Console::over(read, write), guest)
}

/// Reads as much as that.
async fn seen(viewer: &mut Viewer, length: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < length {
        all.extend(viewer.next().await.unwrap().unwrap());
    }
    all
}

/// Waits until all that was written is taken in, by what a viewer sees of it; what came before may still be on its way.
async fn wrote(console: &Console, guest: &mut DuplexStream, bytes: &[u8]) {
    let mut viewer = console.look(false);
    guest.write_all(bytes).await.unwrap();
    let mut all = Vec::new();
    while !all.ends_with(bytes) {
        all.extend(viewer.next().await.unwrap().unwrap());
    }
}

#[tokio::test]
async fn a_guest_writes_whether_or_not_somebody_looks() {
    let (console, mut guest) = port();
    // Far more than every buffer on the way has room for.
    for _ in 0..100 {
        guest.write_all(&[b'x'; PIECE]).await.unwrap();
    }
    wrote(&console, &mut guest, b"last").await;
    let mut late = console.look(true);
    let replayed = late.next().await.unwrap().unwrap();
    assert_eq!(replayed.len(), RING);
    assert!(replayed.ends_with(b"xlast"));
}

#[tokio::test]
async fn a_second_viewer_takes_over_and_the_first_types_no_more() {
    let (console, mut guest) = port();
    let mut first = console.look(false);
    let keyboard = first.keyboard();
    assert!(keyboard.type_in(b"a".to_vec()).await);
    guest.write_all(b"one").await.unwrap();
    assert_eq!(seen(&mut first, 3).await, b"one");
    let mut second = console.look(false);
    assert_eq!(first.next().await, Err(Cut::TakenOver));
    assert!(!keyboard.type_in(b"not this".to_vec()).await);
    assert!(second.keyboard().type_in(b"b".to_vec()).await);
    guest.write_all(b"two").await.unwrap();
    assert_eq!(seen(&mut second, 3).await, b"two");
    let mut typed = [0; 2];
    guest.read_exact(&mut typed).await.unwrap();
    assert_eq!(&typed, b"ab");
}

#[tokio::test]
async fn a_viewer_that_does_not_keep_up_is_cut_after_what_waits_for_it() {
    let (console, mut guest) = port();
    let mut slow = console.look(false);
    for _ in 0..2 * WAITING {
        guest.write_all(&[b'y'; PIECE]).await.unwrap();
    }
    let mut got = 0;
    let cut = loop {
        match slow.next().await {
            Ok(Some(piece)) => got += piece.len(),
            Ok(None) => panic!("it ended"),
            Err(cut) => break cut,
        }
    };
    assert_eq!(cut, Cut::TooSlow);
    assert!((WAITING..2 * WAITING * PIECE).contains(&got), "{got}");
    // The guest did not wait for it, and the next one looks on.
    wrote(&console, &mut guest, b"on and on").await;
}

#[tokio::test]
async fn the_end_of_the_guest_is_the_end_for_viewers() {
    let (console, mut guest) = port();
    let mut viewer = console.look(false);
    guest.write_all(b"bye").await.unwrap();
    drop(guest);
    assert_eq!(seen(&mut viewer, 3).await, b"bye");
    assert_eq!(viewer.next().await, Ok(None));
    let mut late = console.look(true);
    assert_eq!(late.next().await, Ok(Some(b"bye".to_vec())));
    assert_eq!(late.next().await, Ok(None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::soak::cases(64)))]

    /// The ring is the end of all that was written, however it was written.
    #[test]
    fn the_ring_is_the_end_of_what_was_written(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..3 * PIECE), 0..40),
    ) {
        let mut state = State::default();
        for piece in &pieces {
            state.written(piece);
        }
        let all = pieces.concat();
        let kept = all.len().min(RING);
        prop_assert!(state.ring.iter().eq(&all[all.len() - kept..]));
    }
}
