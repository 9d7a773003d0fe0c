//! The laws of copies: fold, conflation, projection, resume, idempotence, convergence, against plain lists
//! that remember every revision.

mod copies;
mod deltas;
mod fanout;
mod oracle;
mod resumes;
mod resyncs;
mod views;
