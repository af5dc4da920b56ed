"""The load generators: that the floor is honest, that figures are computed right, that commands print their shapes."""
