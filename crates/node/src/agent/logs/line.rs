//! Lines of a log file: `2026-01-02T03:04:05.678901234Z stdout F text`.

use jiff::Timestamp;

use super::StandardStream;

/// One line, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// As it was written.
    pub(super) time: &'a str,
    pub(super) stream: StandardStream,
    /// The line goes on.
    pub(super) partial: bool,
    pub(super) text: &'a [u8],
}

/// Reads a line without its end; none if it is not in the form of a log.
pub(super) fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let time = std::str::from_utf8(parts.next()?).ok().filter(|time| !time.is_empty())?;
    let stream = match parts.next()? {
        b"stdout" => StandardStream::Out,
        b"stderr" => StandardStream::Error,
        _ => return None,
    };
    // There may be more tags after the first, by colons; none is known.
    let partial = match parts.next()?.split(|byte| *byte == b':').next()? {
        b"F" => false,
        b"P" => true,
        _ => return None,
    };
    Some(Line { time, stream, partial, text: parts.next().unwrap_or_default() })
}

/// The end of a log that holds so many whole lines, of a stream if one is named.
pub(super) fn tail(bytes: &[u8], lines: u64, stream: Option<StandardStream>) -> &[u8] {
    let mut left = lines;
    let mut start = bytes.len();
    // Where each line begins, from the last one back.
    let mut rest = bytes;
    while !rest.is_empty() {
        let body = rest.strip_suffix(b"\n").unwrap_or(rest);
        let begin = body.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let line = parse(&body[begin..]);
        let ends_line = line.is_none_or(|line| !line.partial);
        if line.is_some_and(|line| stream.is_some_and(|stream| stream != line.stream)) {
            // It is not shown, and counts for nothing.
        } else if ends_line {
            // A new line ends here; the parts before it belong to it.
            if left == 0 {
                break;
            }
            left -= 1;
        } else if left == lines {
            // Parts at the very end, whose line is not whole yet: they are a line, too.
            if left == 0 {
                break;
            }
            left -= 1;
        }
        start = begin;
        rest = &rest[..begin];
    }
    &bytes[start..]
}

/// Turns a log into what the container wrote.
pub(super) struct Renderer {
    since: Option<Timestamp>,
    timestamps: bool,
    stream: Option<StandardStream>,
    /// The beginning of a line that is not whole yet.
    pending: Vec<u8>,
    /// Whether the next text begins a line.
    fresh: bool,
}

impl Renderer {
    pub(super) fn new(since: Option<Timestamp>, timestamps: bool, stream: Option<StandardStream>) -> Self {
        Self { since, timestamps, stream, pending: Vec::new(), fresh: true }
    }

    /// Takes more of the log; what is no whole line yet waits for its rest.
    pub(super) fn render(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let whole = pending.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut out = Vec::new();
        for line in pending[..whole].split_inclusive(|byte| *byte == b'\n') {
            self.one(line.strip_suffix(b"\n").unwrap_or(line), &mut out);
        }
        self.pending = pending[whole..].to_vec();
        out
    }

    fn one(&mut self, line: &[u8], out: &mut Vec<u8>) {
        // What a full disk has torn is left out.
        let Some(line) = parse(line).filter(|line| self.stream.is_none_or(|stream| stream == line.stream)) else {
            return;
        };
        let time = line.time.parse::<Timestamp>();
        if let (Some(since), Ok(time)) = (self.since, time)
            && time < since
        {
            return;
        }
        if self.timestamps && self.fresh {
            out.extend_from_slice(line.time.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(line.text);
        if !line.partial {
            out.push(b'\n');
        }
        self.fresh = !line.partial;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIME: &str = "2026-01-02T03:04:05.000000001Z";

    #[test]
    fn lines_that_are_none_are_not_read() {
        for bad in ["", "x", "t stdout", "t stdout X text", "t other F text", " stdout F text"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad:?}");
        }
        let line = format!("{TIME} stderr P:tag a b ");
        assert_eq!(
            parse(line.as_bytes()),
            Some(Line { time: TIME, stream: StandardStream::Error, partial: true, text: b"a b " })
        );
        let empty = format!("{TIME} stdout F ");
        assert_eq!(
            parse(empty.as_bytes()),
            Some(Line { time: TIME, stream: StandardStream::Out, partial: false, text: b"" })
        );
    }

    fn log(lines: &[Vec<String>]) -> Vec<u8> {
        let mut log = String::new();
        for parts in lines {
            for (index, part) in parts.iter().enumerate() {
                let tag = if index + 1 == parts.len() { "F" } else { "P" };
                log.push_str(&format!("{TIME} stdout {tag} {part}\n"));
            }
        }
        log.into_bytes()
    }

    proptest! {
        #[test]
        fn what_was_written_comes_back_whatever_the_pieces(
            lines in prop::collection::vec(prop::collection::vec("[a-z ]{0,6}", 1..4), 0..8),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
            last in 0_u64..10,
        ) {
            let text: Vec<String> = lines.iter().map(|parts| format!("{}\n", parts.concat())).collect();
            let log = log(&lines);
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(log.len() + 1)).collect();
            at.extend([0, log.len()]);
            at.sort_unstable();
            let mut renderer = Renderer::new(None, false, None);
            let out: Vec<u8> = at.windows(2).flat_map(|pair| renderer.render(&log[pair[0]..pair[1]])).collect();
            prop_assert_eq!(String::from_utf8(out).unwrap(), text.concat());

            let wanted = text.len().saturating_sub(usize::try_from(last).unwrap());
            let out = Renderer::new(None, false, None).render(tail(&log, last, None));
            prop_assert_eq!(String::from_utf8(out).unwrap(), text[wanted..].concat());
        }
    }

    #[test]
    fn times_stand_before_lines_and_old_lines_are_left_out() {
        let text = format!("2020-01-01T00:00:00Z stdout F old\n{TIME} stdout P new\n{TIME} stdout F er\n");
        let mut renderer = Renderer::new(Some("2025-01-01T00:00:00Z".parse().unwrap()), true, None);
        let out = renderer.render(text.as_bytes());
        assert_eq!(String::from_utf8(out).unwrap(), format!("{TIME} newer\n"));
    }

    proptest! {
        /// Whatever is written to one stream, the other shows nothing of it.
        #[test]
        fn a_stream_alone_is_what_was_written_to_it(
            lines in prop::collection::vec((any::<bool>(), "[a-z]{0,6}", any::<bool>()), 0..20),
            last in 0_u64..10,
        ) {
            let name = |error: bool| if error { "stderr" } else { "stdout" };
            let tag = |partial: bool| if partial { "P" } else { "F" };
            let log: String = lines
                .iter()
                .map(|(error, text, partial)| format!("{TIME} {} {} {text}\n", name(*error), tag(*partial)))
                .collect();
            for (stream, is_error) in [(StandardStream::Out, false), (StandardStream::Error, true)] {
                let own: String =
                    log.lines().filter(|line| line.contains(&format!(" {} ", name(is_error)))).map(|line| format!("{line}\n")).collect();
                let alone = |log: &str, stream| Renderer::new(None, false, stream).render(log.as_bytes());
                prop_assert_eq!(alone(&log, Some(stream)), alone(&own, None));
                let end = |log: &str, of| Renderer::new(None, false, of).render(tail(log.as_bytes(), last, of));
                prop_assert_eq!(end(&log, Some(stream)), end(&own, None));
            }
        }
    }
}
