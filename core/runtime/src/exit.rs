//! Exit codes, after `sysexits.h`: what a script or an orchestrator may rely on.

/// A mistake in configuration or on the command line; starting again without a change is useless.
pub const USAGE: u8 = 64;
/// A defect of this software: a task that must not end has ended.
pub const SOFTWARE: u8 = 70;
/// Something outside was not there (an address in use, a peer out of reach); later it may be.
pub const TEMPORARY: u8 = 75;
