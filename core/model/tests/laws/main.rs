//! The laws of copies: fold, conflation, projection, resume, idempotence, convergence, against plain lists
//! that remember every revision.

#[cfg(test)]
mod copies;
#[cfg(test)]
mod deltas;
#[cfg(test)]
mod fanout;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod resumes;
#[cfg(test)]
mod resyncs;
#[cfg(test)]
mod views;
