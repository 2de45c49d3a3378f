//! The probe's firmware, assembled with this program.

/// The smallest firmware that QEMU maps, with the reset vector 16 bytes before its end.
const SIZE: usize = 64 << 10;
const RESET: usize = SIZE - 16;
/// The port of the device that ends QEMU.
pub(super) const PORT: u8 = 0xf4;

/// What the firmware says before it ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Said {
    /// It came through.
    Well,
    /// Memory did not read as it was written.
    Forgot,
    /// The processor took this exception.
    Exception(u8),
}

impl Said {
    /// What an exit code of QEMU means: what was written to the port, twice, plus one.
    pub(super) fn by_exit(code: i32) -> Option<Self> {
        let byte = u8::try_from((code - 1) / 2).ok().filter(|_| code % 2 == 1)?;
        match byte {
            0x2a => Some(Self::Well),
            0x29 => Some(Self::Forgot),
            // One is also what programs return that fail, and what zero on the port would make of it.
            1..32 => Some(Self::Exception(byte)),
            _ => None,
        }
    }
}

/// The whole of it, as QEMU loads it.
pub(super) fn firmware() -> Vec<u8> {
    let mut rom = vec![0xf4; SIZE];
    let code = code();
    rom[..code.len()].copy_from_slice(code);
    // A jump to the beginning, over the end of the segment.
    rom[RESET..RESET + 3].copy_from_slice(&[0xe9, 0x0d, 0x00]);
    rom
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "what is assembled is reached through its labels")]
fn code() -> &'static [u8] {
    unsafe extern "C" {
        static orlop_probe_begin: u8;
        static orlop_probe_end: u8;
    }
    let (begin, end) = (&raw const orlop_probe_begin, &raw const orlop_probe_end);
    // SAFETY: the two labels are the ends of one section that is part of this program and never written.
    unsafe { std::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

/// KVM runs x86 guests on x86 alone; a processor of another kind is told apart before.
#[cfg(not(target_arch = "x86_64"))]
fn code() -> &'static [u8] {
    &[]
}

#[cfg(target_arch = "x86_64")]
#[expect(bad_asm_style, reason = "LLVM's Intel syntax has no sums of labels; one macro uses the other syntax for them")]
#[expect(unsafe_code, reason = "it is data: nothing in this program jumps there")]
mod assembled {
    std::arch::global_asm!(include_str!("probe.s"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_fits_before_the_reset_vector() {
        assert!(!code().is_empty() && code().len() < RESET);
        assert_eq!(firmware().len(), SIZE);
    }

    #[test]
    fn an_exit_code_tells_what_the_firmware_said() {
        assert_eq!(Said::by_exit(85), Some(Said::Well));
        assert_eq!(Said::by_exit(83), Some(Said::Forgot));
        assert_eq!(Said::by_exit(29), Some(Said::Exception(14)));
        for code in [0, 1, 2, 134, 255, -1] {
            assert_eq!(Said::by_exit(code), None, "{code}");
        }
    }
}
