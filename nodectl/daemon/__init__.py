"""The service: admits, remembers, sweeps. The only part of nodectl that uses asyncio."""
