//! Inputs that are nearly right: what a parser is given after a few bytes of something valid have changed.

/// One change: what to do, where, and with which byte.
pub type Edit = (u8, u16, u8);

/// Changes a text byte by byte. Each edit replaces, inserts, removes, repeats a part or cuts the rest off; what it means depends
/// on nothing but its numbers, so that a generator can make them up and shrink them.
#[must_use]
pub fn edited(text: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut text = text.to_vec();
    for (what, at, with) in edits {
        let at = usize::from(*at) % (text.len() + 1);
        match what % 6 {
            0 => text.insert(at, *with),
            1 if at < text.len() => text[at] = *with,
            2 if at < text.len() => drop(text.remove(at)),
            // What has a meaning is more likely to lead somewhere than any other byte.
            3 => text.insert(at, MEANINGFUL[usize::from(*with) % MEANINGFUL.len()]),
            4 => {
                let part = text[at..text.len().min(at + usize::from(*with))].to_vec();
                text.splice(at..at, part);
            }
            5 if *with % 8 == 0 => text.truncate(at),
            _ => {}
        }
    }
    text
}

const MEANINGFUL: &[u8] = b"{}[]:,\"'\\/~.-+*&!?()=<>$%#|@0159aenx \n\t\0\xff\x80\x7f";

#[test]
fn edits_do_what_they_say_wherever_they_are() {
    assert_eq!(edited(b"abc", &[(0, 1, b'x'), (1, 0, b'y'), (2, 3, 0)]), b"yxb");
    assert_eq!(edited(b"abc", &[(4, 1, 2)]), b"abcbc");
    assert_eq!(edited(b"abc", &[(5, 1, 8)]), b"a");
    assert_eq!(edited(b"", &[(1, 9, 0), (2, 9, 0), (4, 9, 9), (3, 9, 0)]), b"{");
}
