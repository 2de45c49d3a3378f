//! What was needed once and is not any more goes back to the machine: a start, or many VMs at once, take several times the
//! memory that is needed afterwards, and the C library would keep it. A process per VM keeps of its start nothing at all,
//! neither heap nor code.

use std::convert::Infallible;
use std::time::Duration;

use manager::caches::Caches;
use tokio::time::sleep;

/// Between two looks at how much there is.
const LOOK: Duration = Duration::from_secs(5);
/// After so long a VM has been started.
const STARTED: Duration = Duration::from_secs(5);
/// So much more than after the last time, and it is worth the effort.
const GROWTH: u64 = 2 << 20;

/// Gives memory back whenever much has come, for ever; before that, whoever is asked to forgets what can be read again.
pub(crate) async fn give_back(forget: impl Fn()) -> Infallible {
    let mut kept = 0;
    loop {
        sleep(LOOK).await;
        if is_worth_it(resident(), kept) {
            forget();
            // It takes milliseconds, in which other threads may have to wait for memory; not the one that runs this.
            let trimmed = tokio::task::spawn_blocking(trim).await;
            kept = resident();
            tracing::debug!(is_ok = trimmed.is_ok(), bytes = kept, "returned unused memory to the kernel");
        }
    }
}

/// Gives memory back while a program runs, and ends with it.
pub(crate) async fn during<T>(caches: &Caches, program: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        ended = program => ended,
        never = give_back(|| caches.cool()) => match never {},
    }
}

/// Gives back, once, what a process needed for its start and now does without.
pub(crate) async fn forget_start() {
    sleep(STARTED).await;
    trim();
    match std::fs::read_to_string("/proc/self/maps") {
        Ok(maps) => code(&maps).into_iter().for_each(unmap),
        Err(error) => tracing::debug!(%error, "cannot read the memory usage of this process"),
    }
}

/// Where the code of programs and libraries is: an address and how many bytes. Code is what is executed, never written, and
/// of a file.
fn code(maps: &str) -> Vec<(usize, usize)> {
    let area = |line: &str| {
        let mut words = line.split_whitespace();
        let (range, rights, _offset, _device, inode) =
            (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
        let (start, end) = range.split_once('-')?;
        let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        (rights == "r-xp" && inode != "0").then(|| (start, end.saturating_sub(start)))
    };
    maps.lines().filter_map(area).collect()
}

/// Forgets pages of code. Those that are needed again come back from the kernel's cache of files.
#[expect(unsafe_code, reason = "there is no safe way to tell the kernel")]
fn unmap((start, length): (usize, usize)) {
    let address: *mut libc::c_void = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: pages of a private mapping that was never written are the file's, so what is read after this is what was
    // read before. If the area is gone meanwhile, or is another's, the worst is an error: only threads of this process
    // could change it, and none unloads code.
    unsafe { libc::madvise(address, length, libc::MADV_DONTNEED) };
}

fn is_worth_it(resident: u64, kept: u64) -> bool {
    resident > kept.saturating_add(GROWTH)
}

/// The process' own memory in bytes; pages of files are not.
fn resident() -> u64 {
    own_memory(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn own_memory(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() << 10
}

#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "there is no safe way to tell the C library")]
fn trim() {
    // SAFETY: it touches nothing but what is free, and may be called from any thread at any time.
    unsafe { libc::malloc_trim(0) };
}

/// Threads share what is free, as many at a time as can run: with a place of its own for each, most of what a process has is free
/// memory of threads that do nothing. It holds for threads that begin after it.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "there is no safe way to tell the C library")]
pub(crate) fn share_arenas() {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // SAFETY: it sets a number, and may be called at any time.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, libc::c_int::try_from(threads).unwrap_or(libc::c_int::MAX)) };
}

/// Other C libraries give back by themselves.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(not(target_env = "gnu"))]
pub(crate) fn share_arenas() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_what_is_of_no_file() {
        assert_eq!(own_memory("VmRSS:\t   300 kB\nRssAnon:\t   200 kB\nRssFile:\t   100 kB\n"), 200 << 10);
        assert_eq!(own_memory(""), 0);
        assert!(resident() > 0);
    }

    #[test]
    fn only_much_that_came_is_worth_the_effort() {
        assert!(is_worth_it(GROWTH + 2, 1));
        assert!(!is_worth_it(GROWTH + 1, 1));
        assert!(!is_worth_it(0, GROWTH));
    }

    #[test]
    fn code_is_executed_never_written_and_of_a_file() {
        let maps = "55d0-55d8 r--p 0000 fe:00 42 /usr/bin/orlop\n\
                    55d8-55f0 r-xp 8000 fe:00 42 /usr/bin/orlop\n\
                    55f0-55f8 rw-p 9000 fe:00 42 /usr/bin/orlop\n\
                    7f00-7f08 r-xp 0000 00:00 0 [vdso]\n\
                    7f10-7f20 rwxp 0000 fe:00 42 /usr/lib/strange.so\n";
        assert_eq!(code(maps), [(0x55d8, 0x18)]);
    }

    fn of_files() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap().to_owned();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    }

    #[test]
    fn code_that_is_not_needed_is_let_go_of() {
        testkit::alone(module_path!(), "code_that_is_not_needed_is_let_go_of", || {
            // All of this program, and it goes on running without it.
            for (start, length) in code(&std::fs::read_to_string("/proc/self/maps").unwrap()) {
                let pages: Vec<u8> = (start..start + length).step_by(4096).map(first_byte).collect();
                assert!(!pages.is_empty());
            }
            let before = of_files();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime.unwrap().block_on(forget_start());
            let after = of_files();
            assert!(after + (4 << 10) < before, "{after} of {before} KiB are left");
        });
    }

    #[expect(unsafe_code, reason = "code is read to have its page in memory")]
    fn first_byte(address: usize) -> u8 {
        // SAFETY: the address is in an area of code that stays mapped and is never written.
        unsafe { std::ptr::with_exposed_provenance::<u8>(address).read_volatile() }
    }

    #[test]
    fn memory_that_is_free_goes_back() {
        testkit::alone(module_path!(), "memory_that_is_free_goes_back", || {
            // Small pieces between pieces that stay: the library cannot give these back by itself.
            let mut pieces: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 2000]).collect();
            let full = resident();
            let mut number = 0;
            pieces.retain(|_| {
                number += 1;
                number % 100 == 0
            });
            trim();
            let left = resident();
            assert!(left + (20 << 20) < full, "{left} of {full} are left");
            assert_eq!(pieces.len(), 200);
        });
    }
}
