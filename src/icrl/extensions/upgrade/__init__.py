"""Extension: conversion of histories, checkpoints and results of older versions, `src.upgrade`."""
