//! Progress of what takes long: a bar on a terminal, lines elsewhere.

use std::io::{IsTerminal as _, Write};

use tokio::time::Instant;

/// How many characters of a bar there are.
const WIDTH: usize = 24;
/// Clears a terminal's line, and goes to its beginning.
const CLEAR: &str = "\r\x1b[K";
/// What is longer than a terminal's line is cut there, until it is not.
const CUT: &str = "\x1b[?7l";
const NO_CUT: &str = "\x1b[?7h";
/// Where lines are written, so many percent are one line.
const LINE: u8 = 10;

/// How far something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It goes on, and this is what is being done.
    Goes(String),
    /// It goes on, and so many percent are done.
    Part { step: String, percent: u8 },
    /// It is done.
    Done,
    /// It will not be done, for this reason.
    Failed(String),
}

/// Shows progress as it is made.
pub(crate) struct Bar {
    begun: Instant,
    is_terminal: bool,
    told: Option<(String, u8)>,
}

impl Bar {
    /// A bar if standard output is a terminal.
    pub(crate) fn begin() -> Self {
        Self { begun: Instant::now(), is_terminal: std::io::stdout().is_terminal(), told: None }
    }

    /// Shows what is being done now, if that is news.
    pub(crate) fn show(&mut self, out: &mut impl Write, step: &str, percent: Option<u8>) -> std::io::Result<()> {
        let shown = percent.map(|percent| if self.is_terminal { percent } else { percent / LINE * LINE });
        let news = Some((step.to_owned(), shown.unwrap_or_default()));
        if self.told == news {
            return Ok(());
        }
        self.told = news;
        let passed = self.begun.elapsed().as_millis();
        match (self.is_terminal, shown) {
            (true, shown) => write!(out, "{CLEAR}{CUT}{}{NO_CUT}", bar(&plain(step), shown))?,
            (false, Some(percent)) => writeln!(out, "{passed:6} ms  {}: {percent}%", plain(step))?,
            (false, None) => writeln!(out, "{passed:6} ms  {}", plain(step))?,
        }
        out.flush()
    }

    /// Leaves the last line, and says that it is done.
    pub(crate) fn end(&mut self, out: &mut impl Write, word: &str) -> std::io::Result<()> {
        self.leave(out)?;
        writeln!(out, "{:6} ms  {word}", self.begun.elapsed().as_millis())
    }

    /// What follows has a line of its own.
    pub(crate) fn leave(&mut self, out: &mut impl Write) -> std::io::Result<()> {
        let is_drawn = self.is_terminal && self.told.take().is_some();
        if is_drawn { write!(out, "{CLEAR}") } else { Ok(()) }
    }
}

/// What is being done is told by others, servers of strangers among them: their words do not steer a terminal.
fn plain(step: &str) -> String {
    step.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

fn bar(step: &str, percent: Option<u8>) -> String {
    let Some(percent) = percent.map(|percent| percent.min(100)) else { return step.to_owned() };
    let filled = WIDTH * usize::from(percent) / 100;
    format!("[{}{}] {percent:3}%  {step}", "#".repeat(filled), ".".repeat(WIDTH - filled))
}

/// A percentage such as `42.37%`, as CDI writes it.
pub(crate) fn percent(text: &str) -> Option<u8> {
    let whole = text.strip_suffix('%')?.split('.').next()?;
    whole.parse().ok().filter(|percent| *percent <= 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_it_says() {
        assert_eq!(bar("importing", Some(50)), "[############............]  50%  importing");
        assert_eq!(bar("importing", Some(255)), "[########################] 100%  importing");
        assert_eq!(bar("waiting", None), "waiting");
        assert_eq!(
            [percent("42.37%"), percent("100.0%"), percent("101%"), percent("N/A")],
            [Some(42), Some(100), None, None]
        );
    }

    #[tokio::test]
    async fn lines_are_written_when_there_is_news() {
        let mut out = Vec::new();
        let mut bar = Bar { begun: Instant::now(), is_terminal: false, told: None };
        bar.show(&mut out, "waiting", None).unwrap();
        for percent in 0..=100 {
            bar.show(&mut out, "importing", Some(percent)).unwrap();
        }
        bar.end(&mut out, "done").unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().map(|line| line.split_once(" ms  ").unwrap().1).collect();
        assert_eq!(lines.len(), 13);
        assert_eq!([lines[0], lines[1], lines[2], lines[12]], ["waiting", "importing: 0%", "importing: 10%", "done"]);
    }

    #[tokio::test]
    async fn a_terminal_has_one_line() {
        let mut out = Vec::new();
        let mut bar = Bar { begun: Instant::now(), is_terminal: true, told: None };
        for percent in [1, 1, 2] {
            bar.show(&mut out, "importing", Some(percent)).unwrap();
        }
        bar.leave(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!((text.matches(CLEAR).count(), text.contains('\n')), (3, false));
    }

    #[tokio::test]
    async fn no_step_steers_a_terminal() {
        let mut out = Vec::new();
        let mut bar = Bar { begun: Instant::now(), is_terminal: true, told: None };
        bar.show(&mut out, "the server says\x1b[2J\r\nno", None).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("{CLEAR}{CUT}the server says [2J  no{NO_CUT}"));
    }
}
