//! One connection, of the kernel or simulated.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::AlertDescription;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// What a simulated connection must be able to do.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static> Duplex for T {}

/// One connection: bytes both ways. Dropping it closes it.
pub enum Stream {
    /// Of the kernel, without delay of small writes.
    Tcp(TcpStream),
    /// Of a simulated network.
    Simulated(Box<dyn Duplex>),
    /// TLS over another one.
    Tls(Box<TlsStream<Stream>>),
}

impl Stream {
    /// The kernel's socket, for readiness without a buffer; none if simulated or by TLS.
    #[must_use]
    pub fn as_tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(stream) => Some(stream),
            Self::Simulated(_) | Self::Tls(_) => None,
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(stream) => fmt::Debug::fmt(stream, f),
            Self::Simulated(_) => f.write_str("Simulated"),
            Self::Tls(stream) => f.debug_tuple("Tls").field(stream.get_ref().0).finish(),
        }
    }
}

/// By TLS 1.3 a client has connected before the server looks at its certificate: that this is not taken comes as the
/// end of whatever is done then, which says nothing of it.
fn tell_refusal(error: &io::Error) {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::AlertReceived(alert)) = cause else { return };
    let advice = if *alert == AlertDescription::CertificateRequired {
        "it asks for a certificate, and none was shown to it"
    } else {
        "it does not take the certificate that was shown to it, if one was"
    };
    tracing::warn!(?alert, "a server ended a TLS connection: {advice}");
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Simulated(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => {
                let read = Pin::new(&mut **stream).poll_read(context, buffer);
                if let (Poll::Ready(Err(error)), TlsStream::Client(_)) = (&read, &**stream) {
                    tell_refusal(error);
                }
                read
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Simulated(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Simulated(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Simulated(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Simulated(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Simulated(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
