"""What tests of rendering share."""
