//! The token that a client shows with each request.

use std::path::PathBuf;

use presence_model::link::Token;
use presence_proto::ServiceError;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// What a client shows beside the certificate of its network.
#[derive(Debug, Clone, Default)]
pub enum Bearer {
    /// Nothing.
    #[default]
    Nobody,
    /// This token.
    Token(Token),
    /// The token that is in a file, read anew for each request, so that a renewed one counts.
    File(PathBuf),
}

impl Bearer {
    /// What goes into the `authorization` of a request; none: nothing does.
    ///
    /// # Errors
    /// The file cannot be read, or holds no text that may be a token.
    fn header(&self) -> Result<Option<MetadataValue<Ascii>>, ServiceError> {
        let text = match self {
            Self::Nobody => return Ok(None),
            Self::Token(token) => token.0.to_string(),
            Self::File(path) => std::fs::read_to_string(path).map_err(|_| ServiceError::Unauthorized)?,
        };
        let header = MetadataValue::try_from(format!("Bearer {}", text.trim()));
        let mut header = header.map_err(|_| ServiceError::Unauthorized)?;
        header.set_sensitive(true);
        Ok(Some(header))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(header) = self.header()? {
            request.metadata_mut().insert("authorization", header);
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_shown_and_never_printed() {
        let request = Bearer::Token(Token("abc.def".into())).call(Request::new(())).unwrap();
        assert_eq!(request.metadata().get("authorization").unwrap(), "Bearer abc.def");
        assert!(!format!("{:?}", request.metadata()).contains("abc"), "{:?}", request.metadata());
        assert!(!format!("{:?}", Bearer::Token(Token("abc.def".into()))).contains("abc"));
        assert!(Bearer::Nobody.call(Request::new(())).unwrap().metadata().is_empty());
    }

    #[test]
    fn whoever_has_lost_its_token_asks_for_nothing_without() {
        let lost = Bearer::File("/nowhere/token".into()).call(Request::new(())).unwrap_err();
        assert_eq!(ServiceError::of(&lost), Some(ServiceError::Unauthorized));
        let broken = Bearer::Token(Token("two\nlines".into())).call(Request::new(())).unwrap_err();
        assert_eq!(ServiceError::of(&broken), Some(ServiceError::Unauthorized));
    }
}
